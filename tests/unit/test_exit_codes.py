"""The exit codes are those that docs/exit-codes.md promises."""

from __future__ import annotations

import re
from pathlib import Path

from relkit import errors

ROWS = re.compile(r"^\| (\d+) \| (.+) \|$", re.MULTILINE)
# What the row of each constant must say.
PHRASES = {
    "EXIT_OK": "nothing wrong",
    "EXIT_PROBLEM": "found a problem",
    "EXIT_USAGE": "usage",
    "EXIT_UNKNOWN": "could not tell",
    "EXIT_CONVICTED": "failed the network check, was excluded as a straggler",
    "EXIT_TIMEOUT": "time limit ran out",
    "EXIT_INTERRUPTED": "interrupted",
}


def test_the_constants_are_the_documented_codes() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "exit-codes.md").read_text()
    documented = {int(code): meaning for code, meaning in ROWS.findall(text)}
    constants = {name: value for name, value in vars(errors).items() if name.startswith("EXIT_")}
    assert constants.keys() == PHRASES.keys()
    for name, code in constants.items():
        assert PHRASES[name] in documented[code], name


def test_the_code_of_every_error_is_one_of_the_constants() -> None:
    codes = {value for name, value in vars(errors).items() if name.startswith("EXIT_")}
    error_types: list[type[errors.RelkitError]] = [
        errors.RelkitError,
        *errors.RelkitError.__subclasses__(),
    ]
    assert len(error_types) > 1
    assert {error_type.exit_code for error_type in error_types} <= codes
    assert errors.RelkitError.exit_code == errors.EXIT_UNKNOWN
    assert errors.UsageProblem.exit_code == errors.EXIT_USAGE
    assert errors.DeadlineExceeded.exit_code == errors.EXIT_TIMEOUT
