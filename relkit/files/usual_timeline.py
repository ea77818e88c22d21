"""Where a hang's evidence goes where nobody names a folder: the same for every command."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from relkit.files.private_file import home_folder

_USUAL = Path("/root/timeline")


def usual_folders() -> tuple[Path, ...]:
    """/root/timeline as the original tool has it, then ~/timeline; each once."""
    home = home_folder()
    return tuple(dict.fromkeys((_USUAL, home / "timeline") if home else (_USUAL,)))


def default_folder(may_be_written: Callable[[Path], bool]) -> Path:
    """The first of them that may be written; the last one where none may.

    Args:
        may_be_written: asked for all but the last.
    """
    *others, last = usual_folders()
    return next(filter(may_be_written, others), last)
