"""Which frame of a stack to show a person: the innermost one of the job's own code."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

from relkit.hang.infrastructure import is_infrastructure
from relkit.stacks.model import Frame
from relkit.text.whole_number import whole_number


def split_source(source: str) -> tuple[str, int]:
    """`path:line` taken apart; line 0 where there is none."""
    path, colon, line = source.rpartition(":")
    number = whole_number(line) if colon else None
    return (source, 0) if number is None else (path, number)


def printable(text: str) -> str:
    """One line without control characters: names come from the job and may hold anything."""
    return "".join(c if c.isprintable() else "?" for c in text)


def is_user_code(frame: Frame) -> bool:
    """Neither the interpreter's nor a well-known library's."""
    path, _ = split_source(frame.source)
    return bool(path) and not is_infrastructure(path)


def place(frame: Frame) -> str:
    """`examples/train.py:88 next_batch`: the last two parts of the path, the line, the function."""
    path, line = split_source(frame.source)
    short = "/".join([p for p in PurePosixPath(path).parts if p != "/"][-2:])
    function = frame.func.rpartition("<locals>.")[2]
    where = f"{short}:{line}" if line else short
    return printable(f"{where} {function}".strip())


def user_depth(frames: Sequence[Frame]) -> int | None:
    """Index of the innermost frame of user code in a stack that begins with the innermost."""
    return next((i for i, frame in enumerate(frames) if is_user_code(frame)), None)
