"""The manifest of an iteration folder: its files, sizes and checksums, and the run's facts."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from relkit.errors import BadInputFile
from relkit.files.input_file import read_input
from relkit.text.foreign_json import parse_json

MANIFEST = "manifest.json"
SCHEMA = "relkit.checkpoint/1"
_LARGEST_BYTES = 1 << 28
_NEXT_STEP = "Resume from another iteration: `relkit ckpt verify` says which are whole."


@dataclass(frozen=True, slots=True)
class FileRecord:
    """One file as it was written.

    Args:
        name: within the iteration's folder, with / between its parts.
        size_bytes: length.
        sha256: of the content, in hexadecimal.
    """

    name: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """What an iteration folder holds.

    Args:
        step: optimizer steps done.
        files: all but the manifest itself.
        facts: plain JSON about the run (degrees, model sizes, samples consumed).
    """

    step: int
    files: tuple[FileRecord, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)

    def encode(self) -> bytes:
        """The manifest as JSON."""
        files = [asdict(record) for record in self.files]
        plain = {"schema": SCHEMA, "step": self.step, "facts": dict(self.facts), "files": files}
        return (json.dumps(plain, indent=1) + "\n").encode()


def read_manifest(folder: Path) -> Manifest:
    """The manifest of an iteration.

    Raises:
        BadInputFile: it is missing, truncated, or names files outside the folder.
    """
    path = folder / MANIFEST
    try:
        plain = parse_json(read_input(path, _LARGEST_BYTES))
        if plain["schema"] != SCHEMA:
            raise BadInputFile(f"{path} is a {plain['schema']!r}, not a {SCHEMA}")
        files = tuple(
            FileRecord(name_inside(entry["name"]), int(entry["size_bytes"]), str(entry["sha256"]))
            for entry in plain["files"]
        )
        return Manifest(int(plain["step"]), files, dict(plain["facts"]))
    except OSError as error:
        raise BadInputFile(f"cannot read {path}: {error.strerror}", next_step=_NEXT_STEP) from error
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        raise BadInputFile(f"{path} is not a manifest: {error}", next_step=_NEXT_STEP) from error


def may_have_manifest(folder: Path) -> bool:
    """False where the folder has none; where that cannot be seen, reading it says why."""
    try:
        return stat.S_ISREG((folder / MANIFEST).stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True


def name_inside(name: object) -> str:
    """A file's name that somebody else has written, where it stays inside of the folder.

    Raises:
        ValueError: it does not, or is no name.
    """
    parts = PurePosixPath(name).parts if isinstance(name, str) else ()
    if not isinstance(name, str) or not parts or parts[0] == "/" or ".." in parts or "\0" in name:
        raise ValueError(f"it names {str(name)[:200]!r}, which is not inside the folder")
    os.fsencode(name)  # not every text can be a name
    return name
