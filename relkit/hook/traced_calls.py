"""Functions whose calls ranks mark in their recorders: their names, by the numbers in the marks.

The names are in the folder of the recorders, where whoever reads a recorder finds them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from relkit.errors import UsageProblem
from relkit.files.private_file import open_private, read_private
from relkit.text.printable import printable_line

MARK = "call"
# The same numbers as in relkit/bootstrap/worker/relkit_call_marks.py.
ALWAYS = {0: "optimizer step", 1: "checkpoint save", 2: "checkpoint load"}
FIRST_NAMED = 16
MAX_NAMED = 64
_FILE = "traced-calls"
_LIMIT_BYTES = 64 << 10
_WORD = r"[^\W\d]\w*"
_FUNCTION = re.compile(rf"({_WORD}(?:\.{_WORD})*):({_WORD}(?:\.{_WORD})*)")


def take_functions(text: str) -> tuple[str, ...]:
    """The functions that an option names.

    Args:
        text: MODULE:FUNCTION, by commas; of a method, MODULE:CLASS.FUNCTION.

    Raises:
        UsageProblem: it names none, or what no module can have.
    """
    functions = tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    if not functions or len(functions) > MAX_NAMED:
        raise UsageProblem(
            f"--trace-python names {len(functions)} functions",
            next_step=f"Name 1 to {MAX_NAMED}, as in --trace-python my.model:Layer.forward.",
        )
    for function in functions:
        parts = _FUNCTION.fullmatch(function)
        if parts is None:
            raise UsageProblem(
                f"--trace-python: {function!r} is no function of a module",
                next_step="Write MODULE:FUNCTION, or MODULE:CLASS.FUNCTION for a method.",
            )
        if parts[1] == "__main__":
            raise UsageProblem(
                "--trace-python: functions of the script itself cannot be traced",
                next_step="Move the function into a module that the script imports.",
            )
    return functions


def write_names(folder: Path, functions: Sequence[str]) -> None:
    """Leave the names where the recorders are.

    Args:
        folder: of the recorders; functions: as take_functions() gives them.

    Raises:
        OSError: it cannot be written.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    with os.fdopen(open_private(folder / _FILE, flags), "wb") as stream:
        stream.write("\n".join(functions).encode())


def names_in(folder: Path) -> dict[int, str]:
    """Name by number, of the functions that ranks mark whose recorders are in a folder."""
    names = dict(ALWAYS)
    with suppress(OSError):
        lines = read_private(folder / _FILE, _LIMIT_BYTES).decode("utf-8", "replace").splitlines()
        for place, line in enumerate(lines[:MAX_NAMED]):
            names[FIRST_NAMED + place] = printable_line(line)
    return names
