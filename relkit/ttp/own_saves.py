"""Whether a job has saved something before it was started again."""

from __future__ import annotations

import os
from pathlib import Path

from relkit.checkpoint import iteration_folder


def saved_since_the_start(notes: Path, folder: Path) -> bool:
    """Whether a checkpoint was written to `folder` since the job's first attempt began.

    Args:
        notes: a folder of the launcher, which lives as long as the job does on this node.
        folder: of the checkpoints.
    """
    tracker = folder / iteration_folder.TRACKER
    try:
        status = tracker.stat()
        now = f"{status.st_ino} {status.st_mtime_ns} {tracker.read_text(encoding='utf-8')}"
    except OSError:
        now = ""
    note = notes / "tracker-at-the-start"
    if os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0":
        # All local ranks write the same; nobody changes the tracker before all have.
        pending = notes / f"{note.name}.{os.getpid()}"
        pending.write_text(now, encoding="utf-8")
        pending.replace(note)
        return False
    try:
        return bool(now) and note.read_text(encoding="utf-8") != now
    except OSError:
        return bool(now)
