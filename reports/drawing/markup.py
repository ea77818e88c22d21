"""Hostile text made safe to put into SVG and HTML, and cut to the width of a box."""

from __future__ import annotations

import re

from relkit.text.printable import UNSAFE, stand_in

NAME_LIMIT = 2000
"""Characters of one frame name or path that a picture keeps; the middle of a longer one goes."""

# What XML 1.0 forbids. C0 controls have pictures of their own in Unicode; the rest have not.
# As a list of these: one of all that is allowed takes ten times as long to compile.
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufffe\uffff]")
_UNSAFE_TO_SHOW = re.compile(f"(?:{UNSAFE.pattern})+")
# "&" first: the others bring new ones.
_ENTITIES = (
    ("&", "&amp;"),
    ("<", "&lt;"),
    (">", "&gt;"),
    ('"', "&quot;"),
    ("\n", "&#10;"),
    ("\r", "&#13;"),
    ("\t", "&#9;"),
)


def _is_plain(text: str) -> bool:
    """Nothing in it is to be replaced: so it is with nearly every name, and this is soon told."""
    return text.isascii() and text.isprintable()


def clean(text: str) -> str:
    """The text with every character that XML forbids replaced by a visible stand-in."""
    if _is_plain(text):
        return text
    return _FORBIDDEN.sub(stand_in, text)


def xml(text: str) -> str:
    """Text for an XML or HTML attribute in double quotes, or for element content."""
    text = clean(text)
    # Looking for one character seven times is faster than looking at every one in Python.
    for character, entity in _ENTITIES:
        if character in text:
            text = text.replace(character, entity)
    return text


def shown(text: str) -> str:
    """Text to draw: one line, no control or direction-changing characters."""
    if _is_plain(text):
        return text
    return _UNSAFE_TO_SHOW.sub("\u00b7", clean(text))


def middle_cut(text: str, limit: int) -> str:
    """At most `limit` characters: the middle goes, both ends stay."""
    if len(text) <= limit:
        return text
    head = (limit - 1 + 1) // 2
    return f"{text[:head]}…{text[len(text) - (limit - 1 - head) :]}"


def cells(text: str) -> int:
    """Width in columns of a monospaced font; never less than what is drawn."""
    if text.isascii():
        return len(text)
    return sum(1 if ord(c) < 0x530 or 0x2000 <= ord(c) < 0x2C00 else 2 for c in text)


def end_cut(text: str, columns: int) -> str:
    """At most `columns` wide. A C++ name keeps its last part, which says what it does."""
    if cells(text) <= columns:
        return text
    if "::" in text:
        return f"…{_tail(text, columns - 1)}" if columns > 1 else ""
    kept = 0
    width = 0
    for char in text:
        width += cells(char)
        if width > columns - 1:
            break
        kept += 1
    return f"{text[:kept]}…" if kept else ""


def _tail(text: str, columns: int) -> str:
    """The end of a C++ name, from a "::" on where that wastes less than half of the room."""
    start = len(text)
    width = 0
    while start > 0 and width + cells(text[start - 1]) <= columns:
        start -= 1
        width += cells(text[start])
    part = text.find("::", start)
    return text[part:] if part >= 0 and cells(text[part:]) * 2 >= columns else text[start:]


def display_name(func: str) -> str:
    """A function name to draw: template arguments become `<…>`, C++ parameters go."""
    if "::" not in func:
        return func
    name = _outside_templates(func.replace("(anonymous namespace)::", ""))
    end = name.rfind(")")
    opened = name.rfind("(", 0, end)
    # "operator()" is a name; what follows the last ")" may only be a qualifier.
    if opened > 0 and not name.endswith("operator", 0, opened) and len(name) - end < 20:
        name = name[:opened]
    return name or func


def _outside_templates(name: str) -> str:
    if "<" not in name:
        return name
    depth = 0
    out: list[str] = []
    for i, char in enumerate(name):
        if char == "<" and i > 0 and not name.endswith(("operator", "operator<"), 0, i):
            depth += 1
            if depth == 1:
                out.append("<…>")
        elif char == ">" and depth:
            # The arrow of "operator->" or of a lambda's type closes nothing.
            depth -= 0 if name[i - 1] == "-" else 1
        elif not depth:
            out.append(char)
    return name if depth else "".join(out)


def place(source: str) -> str:
    """The end of a path: `train.py:88` of `/a/b/train.py:88`."""
    return source.rstrip("/").rpartition("/")[2]
