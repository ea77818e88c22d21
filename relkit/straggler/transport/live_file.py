"""The history of a running job: its launcher writes it often only while somebody looks."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from relkit.files.private_file import open_private

FILE = "straggler.npz"
_ASKED = "straggler.asked"
# So long after the last question it is still written often.
ASKED_FOR_S = 10.0
# A launcher sees within half a second that it is asked.
PATIENCE_S = 4.0
_POLL_S = 0.05


def ask(folder: Path) -> None:
    """Have the launcher write anew what it knows; of a job of another user it stays as it is.

    Args:
        folder: the job's shared-memory folder.
    """
    with contextlib.suppress(OSError):
        descriptor = open_private(folder / _ASKED, os.O_WRONLY | os.O_CREAT)
        try:
            os.utime(descriptor)
        finally:
            os.close(descriptor)


def is_asked(folder: Path) -> bool:
    """Whether somebody has asked lately."""
    try:
        asked_unix_s = (folder / _ASKED).stat().st_mtime
    except OSError:
        return False
    return time.time() - asked_unix_s < ASKED_FOR_S


def wait_for_news(folder: Path, patience_s: float = PATIENCE_S) -> None:
    """Ask, and wait until the launcher has written.

    Args:
        patience_s: no longer than that; it may have been killed.
    """
    before_ns = _written_ns(folder)
    ask(folder)
    until_s = time.monotonic() + patience_s
    while _written_ns(folder) == before_ns and time.monotonic() < until_s:
        time.sleep(_POLL_S)


def _written_ns(folder: Path) -> int:
    try:
        return (folder / FILE).stat().st_mtime_ns
    except OSError:
        return 0
