"""Reads one relkit.toml: each value with the line that it stands in."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Union

from relkit.errors import ConfigProblem
from relkit.files.input_file import read_input_text

_MAX_BYTES = 1 << 20
_TABLE = re.compile(r"\s*\[([^\[\]]+)\]\s*(#.*)?")
_KEY = re.compile(r"""\s*(?P<quote>["']?)(?P<key>[\w.-]+)(?P=quote)\s*=""")


@dataclass(frozen=True, slots=True)
class Setting:
    """One value of a file.

    Args:
        value: as TOML has it.
        file: that it stands in.
        line: its number, from 1; 0 where it was not found.
    """

    value: object
    file: Path
    line: int

    @property
    def where(self) -> str:
        """File and line."""
        return f"{self.file}, line {self.line}" if self.line else str(self.file)


Table = Mapping[str, Union[Setting, "Table"]]


def read_document(path: Path) -> Table:
    """Read a file of settings.

    Args:
        path: of the file.

    Returns:
        Tables by the name of a command, values by the name of an option, with dashes.

    Raises:
        ConfigProblem: it cannot be read, or is no TOML.
    """
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        text = read_input_text(path, _MAX_BYTES)
        document = tomllib.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigProblem(f"{path}: {reason}") from error
    return _with_lines(document, path, _lines(text), ())


def option_name(key: str) -> str:
    """Spell the name of an option as the command line does, without its dashes in front."""
    return key.lstrip("-").replace("_", "-")


def _with_lines(
    table: Mapping[str, object],
    path: Path,
    lines: Mapping[tuple[str, ...], int],
    above: tuple[str, ...],
) -> Table:
    read: dict[str, Setting | Table] = {}
    for key, value in table.items():
        here = (*above, option_name(key))
        if isinstance(value, dict):
            read[here[-1]] = _with_lines(value, path, lines, here)
        else:
            read[here[-1]] = Setting(value, path, lines.get(here, 0))
    return read


def _lines(text: str) -> dict[tuple[str, ...], int]:
    """Find the line of each `key = value`; the first one counts."""
    lines: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), start=1):
        if match := _TABLE.fullmatch(line):
            table = _parts(match[1])
        elif match := _KEY.match(line):
            lines.setdefault((*table, *_parts(match["key"])), number)
    return lines


def _parts(dotted: str) -> tuple[str, ...]:
    return tuple(option_name(part.strip().strip("\"'")) for part in dotted.split("."))
