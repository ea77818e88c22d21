"""Tells the launcher where on disk a job keeps its checkpoints: a note beside the rank's slots."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

from relkit.errors import RelkitError
from relkit.foreign_json import parse_json
from relkit.output import write_atomic
from relkit.private_file import read_private

_MAX_NOTE_BYTES = 1 << 16


def leave(folder: Path, rank: int, root: Path) -> None:
    """Leave the note. Without it, the launcher cannot persist this rank's slots; that is all.

    Args:
        folder: of the slots; root: of the checkpoints on disk.
    """
    with suppress(RelkitError, OSError):
        write_atomic(_note(folder, rank), json.dumps({"root": str(root.absolute())}))


def read(folder: Path, rank: int) -> Path | None:
    """Where a rank keeps its checkpoints on disk; None if it has left no note."""
    try:
        return Path(parse_json(read_private(_note(folder, rank), _MAX_NOTE_BYTES))["root"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _note(folder: Path, rank: int) -> Path:
    return folder / f"rank-{rank}.destination"
