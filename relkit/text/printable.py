"""Text from elsewhere (agents, bundles, dumps) made safe for terminals, pictures and JSON."""

from __future__ import annotations

import re

# Controls (C0, DEL, C1: among them the starts of terminal escapes), characters that are invisible
# or change the direction of the text, and lone surrogates, which no stream can encode.
_CONTROLS = "\x00-\x1f\x7f-\x9f"
_INVISIBLE = "\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff"
UNSAFE = re.compile(f"[{_CONTROLS}{_INVISIBLE}]")
_UNSAFE_IN_TEXT = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f{_INVISIBLE}]")
_UNSAFE_IN_JSON = re.compile(f"[\x7f-\x9f{_INVISIBLE}]")


def stand_in(match: re.Match[str]) -> str:
    """A visible character for an unsafe one: the pictures of Unicode for C0, else U+FFFD."""
    code = ord(match.group())
    return chr(0x2400 + code) if code < 0x20 else "\ufffd"


def printable(text: str) -> str:
    """The text with a visible stand-in for each unsafe character; tabs and line ends stay."""
    return _UNSAFE_IN_TEXT.sub(stand_in, text)


def printable_line(text: str) -> str:
    """The text in one line, with a visible stand-in for each unsafe character."""
    return UNSAFE.sub(stand_in, text)


def printable_json(text: str) -> str:
    """JSON text with unsafe characters escaped; it means the same.

    Args:
        text: of json.dumps, which escapes the C0 controls itself.
    """
    return _UNSAFE_IN_JSON.sub(lambda match: f"\\u{ord(match.group()):04x}", text)
