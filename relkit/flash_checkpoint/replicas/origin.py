"""Tells the workers of a node where their launchers have found the step that is in memory."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from relkit.errors import RelkitError
from relkit.files.private_file import read_private
from relkit.output import write_atomic
from relkit.text.foreign_json import parse_json

_NAME = "origin.json"
_MAX_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Origin:
    """What came of the launchers' replicas before the workers started.

    Args:
        step: that was brought into the slots; -1 where none was.
        words: where from, to follow "step 41 "; "" where none was.
        why_not: why replicas are not used; "" where they are, or there are none.
    """

    step: int = -1
    words: str = ""
    why_not: str = ""


def leave(folder: Path, origin: Origin) -> None:
    """Leave the note in the folder of slots, in place of an older one."""
    with suppress(RelkitError, OSError):
        (folder / _NAME).unlink(missing_ok=True)
        if origin != Origin():
            note = {"step": origin.step, "words": origin.words, "why_not": origin.why_not}
            write_atomic(folder / _NAME, json.dumps(note))


def read(folder: Path | None) -> Origin:
    """The note; an empty one where there is none."""
    try:
        if folder is None:
            return Origin()
        note = parse_json(read_private(folder / _NAME, _MAX_BYTES))
        return Origin(int(note["step"]), str(note["words"]), str(note["why_not"]))
    except (OSError, ValueError, KeyError, TypeError):
        return Origin()
