"""How a running job's straggler detection is set anew without a restart."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from relkit.errors import BadInputFile
from relkit.files.private_file import read_private
from relkit.output import write_atomic
from relkit.straggler.transport.control_settings import Control, Mode
from relkit.text.foreign_json import parse_json

FILE = "straggler-control.json"
_LIMIT_BYTES = 4096


def from_json(plain: object, otherwise: Control) -> Control:
    """Settings out of a document; what is missing stays as it is.

    Raises:
        ValueError: something in it does not fit.
    """
    if not isinstance(plain, Mapping):
        raise ValueError("not a JSON object")
    settings = otherwise
    if "mode" in plain:
        settings = replace(settings, mode=Mode(plain["mode"]))
    if "min_slowdown" in plain:
        settings = replace(settings, min_slowdown=_slowdown(plain["min_slowdown"]))
    return settings


def _slowdown(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError("min_slowdown is not a number")
    if not 0.01 <= value <= 10.0:
        raise ValueError("min_slowdown is not between 0.01 and 10")
    return float(value)


def write(folder: Path, changes: Mapping[str, Any]) -> Path:
    """Ask the launchers that watch this folder to go on with other settings.

    Args:
        folder: the job's shared-memory folder; changes: fields of Control; what is not named
            stays as it was asked for before, or as the job was started.

    Raises:
        ValueError: a value does not fit.
        BadInputFile: what was asked for before cannot be read.
        UnwritablePath: the folder is gone, or not ours.
    """
    from_json(changes, Control())
    path = folder / FILE
    write_atomic(path, json.dumps({**_asked(path), **changes}) + "\n")
    return path


def mark(folder: Path) -> int:
    """A number that changes when other settings are asked for in a job's folder."""
    try:
        return (folder / FILE).stat().st_mtime_ns
    except OSError:
        return 0


def read(folder: Path, otherwise: Control) -> Control:
    """The settings asked for in a job's folder; `otherwise` where nobody has asked.

    Raises:
        BadInputFile: the file is there and cannot be read as settings.
    """
    path = folder / FILE
    try:
        return from_json(_asked(path), otherwise)
    except ValueError as error:
        raise BadInputFile(f"{path}: {error}") from error


def _asked(path: Path) -> Mapping[str, Any]:
    try:
        data = read_private(path, _LIMIT_BYTES)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise BadInputFile(f"cannot read {path}: {error.strerror}") from error
    try:
        plain = parse_json(data)
        from_json(plain, Control())
    except ValueError as error:
        raise BadInputFile(f"{path}: {error}") from error
    settings: Mapping[str, Any] = plain
    return settings
