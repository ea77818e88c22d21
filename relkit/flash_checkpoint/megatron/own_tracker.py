"""Which iteration Megatron itself would resume from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from relkit.checkpoint import iteration_folder
from relkit.checkpoint.manifest import read_manifest
from relkit.errors import BadInputFile


@dataclass(frozen=True, slots=True)
class OwnNewest:
    """What Megatron's tracker names.

    Args:
        step: iteration; -1: there is none, or it is a release.
        saved_unix_ns: when its state was saved; when the tracker was written, if that is not known.
    """

    step: int
    saved_unix_ns: int


def own_newest(folder: Path) -> OwnNewest:
    """What Megatron's tracker in a folder names."""
    try:
        step = iteration_folder.latest(folder)
        if step is None:
            return OwnNewest(-1, 0)
        written_ns = (folder / iteration_folder.TRACKER).stat().st_mtime_ns
    except (BadInputFile, OSError):
        return OwnNewest(-1, 0)  # Megatron itself says what is wrong
    try:
        facts = read_manifest(folder / iteration_folder.iteration_name(step)).facts
        return OwnNewest(step, int(facts["saved_unix_ns"]))
    except (BadInputFile, KeyError, TypeError, ValueError, OverflowError):
        return OwnNewest(step, written_ns)
