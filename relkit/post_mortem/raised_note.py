"""The exception that ended a rank's script, as the rank has left word of it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from relkit.files.input_file import open_input
from relkit.post_mortem.model import safe_line
from relkit.process.identity import name_of, own_namespace

# Behind the name of its process (relkit/bootstrap/worker/sitecustomize.py writes it).
SUFFIX = ".raised"
_MAX_BYTES = 1 << 14


@dataclass(frozen=True, slots=True)
class RaisedNote:
    """What a rank has left; all text is safe to print, and "" where there is none.

    Args:
        error: `ValueError: bad batch`.
        place: FILE:LINE where it was raised.
        unix_s: when it ended the script, Unix time, s.
    """

    error: str = ""
    place: str = ""
    unix_s: float = 0.0


def raised_note(folder: Path | None, pid: int) -> RaisedNote:
    """What a process that has ended has left in the folder for such notes; never raises.

    Args:
        folder: None where there is none.
        pid: its number here; one that is gone is taken for a process of this PID namespace.
    """
    if folder is None:
        return RaisedNote()
    try:
        name = name_of(pid) or f"{pid}.{own_namespace()}"
        with open_input(folder / f"{name}{SUFFIX}", 0) as stream:
            unix_s = os.fstat(stream.fileno()).st_mtime
            data = stream.read(_MAX_BYTES) or b""
    except OSError:
        return RaisedNote()
    error, _, place = data.decode("utf-8", "replace").partition("\0")
    if not error or not place or "\0" in place:
        return RaisedNote()
    return RaisedNote(safe_line(error), safe_line(place), unix_s)
