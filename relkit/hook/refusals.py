"""Word that processes have left of why they record nothing."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

# In place of an error number: native/src/core/state_file.h has it too.
_TOO_MANY_FILES = 0
_FILE_NAME = re.compile(r"([1-9][0-9]*)(?:\.[0-9]+)?\.refused-([0-9]{1,5})")


@dataclass(frozen=True, slots=True)
class Refusal:
    """One process that could not make its recorder file.

    Args:
        pid: its number.
        reason: why, in words.
    """

    pid: int
    reason: str


def take_refusals(folder: Path) -> tuple[Refusal, ...]:
    """What was left since the last call, by pid; it is removed.

    Args:
        folder: of a job's recorder files; nothing where it is gone.
    """
    refusals = []
    try:
        matches = [m for path in folder.iterdir() if (m := _FILE_NAME.fullmatch(path.name))]
    except OSError:
        return ()
    for match in matches:
        (folder / match[0]).unlink(missing_ok=True)
        refusals.append(Refusal(int(match[1]), _words(int(match[2]))))
    return tuple(sorted(refusals, key=lambda refusal: refusal.pid))


def _words(number: int) -> str:
    if number == _TOO_MANY_FILES:
        return "the job has as many recorders as it may have (RELKIT_HOOK_FILES)"
    return os.strerror(number)
