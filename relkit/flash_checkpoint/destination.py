"""Tells the launcher where on disk a job keeps its checkpoints: a note beside the rank's slots.

The note also has the mark of that folder: a file in it with a random text, made once. Slots that a
killed launcher has left are used again only while the folder has the mark that they were saved
under: who removes the folder, to begin anew, does not get the old state back.
"""

from __future__ import annotations

import json
import os
import secrets
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from relkit.errors import RelkitError
from relkit.files.private_file import open_private, read_private
from relkit.flash_checkpoint.slots import slot_folder
from relkit.output import write_atomic
from relkit.text.foreign_json import parse_json

MARK_FILE = ".relkit-memory"
_MAX_NOTE_BYTES = 1 << 16
_MARK_BYTES = 16


@dataclass(frozen=True, slots=True)
class Destination:
    """Where a rank keeps its checkpoints on disk.

    Args:
        root: the folder; mark: its mark at the rank's first save; "" where it could have none.
        launcher: whose rank it was (`slot_folder.owner_of`).
    """

    root: Path
    mark: str
    launcher: str


def leave(folder: Path, rank: int, root: Path) -> None:
    """Leave the note. Without it, the launcher cannot persist this rank's slots; that is all.

    Args:
        folder: of the slots; root: of the checkpoints on disk.
    """
    note = {
        "root": str(root.absolute()),
        "mark": _made_mark(root),
        "launcher": slot_folder.owner_of(folder),
    }
    with suppress(RelkitError, OSError):
        write_atomic(_note(folder, rank), json.dumps(note))


def read(folder: Path, rank: int) -> Destination | None:
    """Where a rank keeps its checkpoints on disk; None if it has left no note."""
    try:
        note = parse_json(read_private(_note(folder, rank), _MAX_NOTE_BYTES))
        return Destination(Path(note["root"]), str(note["mark"]), str(note["launcher"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def mark_of(root: Path) -> str:
    """The mark of a folder of checkpoints; "" where it has none, or is gone."""
    try:
        return read_private(root / MARK_FILE, 2 * _MARK_BYTES).decode("ascii")
    except (OSError, ValueError):
        return ""


def _made_mark(root: Path) -> str:
    """The mark of a folder, which gets one if it has none; all ranks get the same."""
    own = root / f"{MARK_FILE}.{secrets.token_hex(_MARK_BYTES)}"
    with suppress(OSError):
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not mark_of(root):
            with os.fdopen(open_private(own, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
                file.write(secrets.token_hex(_MARK_BYTES).encode("ascii"))
            # Fails where another rank was faster; its mark is read then.
            with suppress(FileExistsError):
                os.link(own, root / MARK_FILE)
            own.unlink()
    return mark_of(root)


def _note(folder: Path, rank: int) -> Path:
    return folder / f"rank-{rank}.destination"
