"""Promises that are broken by name: which function keeps each, and what is done to that function.

A function is found by its name, and no line is quoted, so that an edit breaks no list. Where the
function, or what is to be broken in it, is gone, the break cannot be tried, and `make mutants` says
so.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from tools.mutants.model import Break

# Of a function: what it looks like after the break.
Edit = Callable[[str], str]


class NotThere(Exception):
    """The function, or what is to be broken in it, has gone."""


@dataclass(frozen=True)
class Promise:
    """One promise.

    Args:
        file: of the function; function: its name, with its class.
        words: what no longer holds after the break.
        edit: the break. tests: pytest arguments, one of which has to fail.
    """

    file: str
    function: str
    words: str
    edit: Edit
    tests: tuple[str, ...]


def swap(pattern: str, new: str) -> Edit:
    """Put something else in the place of what a regular expression matches, once."""

    def edit(text: str) -> str:
        changed, times = re.subn(pattern, lambda _: new, text, count=1)
        if not times:
            raise NotThere(pattern)
        return changed

    return edit


def without(word: str) -> Edit:
    """Leave out each statement of one line (or, of Python, of several) that has this word."""

    def edit(text: str) -> str:
        if text.lstrip().startswith(("def ", "async def ", "@")):
            return _without_statements(text, word)
        return swap(rf"[^;{{}}]*{re.escape(word)}[^;{{}}]*;", ";")(text)

    return edit


def gives(value: str) -> Edit:
    """A function that only returns this."""

    def edit(text: str) -> str:
        if text.lstrip().startswith(("def ", "@")):
            (function,) = ast.parse(_flush_left(text)).body
            assert isinstance(function, ast.FunctionDef)
            lines = text.splitlines(keepends=True)
            indent = len(text) - len(text.lstrip())
            space = " " * (indent + function.body[0].col_offset)
            return "".join(lines[: function.body[0].lineno - 1]) + f"{space}return {value}\n"
        return swap(r"\{(?s:.*)\}", f"{{ return {value}; }}")(text)

    return edit


def _flush_left(text: str) -> str:
    indent = len(text) - len(text.lstrip())
    return "".join(
        line[min(indent, len(line) - len(line.lstrip())) :] for line in text.splitlines(True)
    )


def _without_statements(text: str, word: str) -> str:
    flush = _flush_left(text)
    lines = flush.splitlines(keepends=True)
    kinds = (ast.Raise, ast.Expr, ast.Assign, ast.AugAssign)
    found = [
        node
        for node in ast.walk(ast.parse(flush))
        if isinstance(node, kinds) and word in (ast.get_source_segment(flush, node) or "")
        and not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
    ]  # fmt: skip
    if not found:
        raise NotThere(word)
    for node in sorted(found, key=lambda node: -node.lineno):
        assert node.end_lineno is not None
        lines[node.lineno - 1 : node.end_lineno] = [" " * node.col_offset + "pass\n"]
    indent = " " * (len(text) - len(text.lstrip()))
    return "".join(indent + line if line.strip() else line for line in lines)


def broken(root: Path, promise: Promise) -> Break:
    """The break of one promise.

    Raises:
        NotThere: there is nothing to break.
    """
    whole = (root / promise.file).read_text(encoding="utf-8")
    find = _c_function if promise.file.endswith((".c", ".h")) else _python_function
    begin, end = find(whole, promise.function)
    source = whole[:begin] + promise.edit(whole[begin:end]) + whole[end:]
    line = whole.count("\n", 0, begin) + 1
    return Break(promise.file, promise.function, line, "", "", source, promise.tests, promise.words)


def _python_function(whole: str, name: str) -> tuple[int, int]:
    scope: Iterable[ast.stmt] = ast.parse(whole).body
    node: ast.stmt | None = None
    for part in name.split("."):
        node = next((n for n in scope if getattr(n, "name", None) == part), None)
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            raise NotThere(name)
        scope = node.body
    assert node is not None
    assert node.end_lineno is not None
    lines = whole.splitlines(keepends=True)
    begin = len("".join(lines[: node.lineno - 1]))
    return begin, begin + len("".join(lines[node.lineno - 1 : node.end_lineno]))


def _c_function(whole: str, name: str) -> tuple[int, int]:
    """From its first line to the bracket in the first column."""
    head = re.compile(rf"^(?=[A-Za-z])(?![^\n]*;$)[^\n;=]*\b{re.escape(name)}\(", re.MULTILINE)
    begin = head.search(whole)
    end = re.compile(r"^\}", re.MULTILINE).search(whole, begin.end()) if begin else None
    if begin is None or end is None:
        raise NotThere(name)
    return begin.start(), end.end()
