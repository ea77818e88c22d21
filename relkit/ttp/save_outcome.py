"""How a job under try-to-persist ended, and the exit code that says so."""

from __future__ import annotations

from dataclasses import dataclass

# sysexits.h's EX_TEMPFAIL: start it again, and it goes on. The next two are free there.
EXIT_SAVED = 75
EXIT_REFUSED = 76
EXIT_SAVE_FAILED = 77


@dataclass(frozen=True, slots=True)
class SaveOutcome:
    """What was saved after a fault, or why nothing was.

    Args:
        code: EXIT_SAVED, EXIT_REFUSED or EXIT_SAVE_FAILED.
        sentence: for the person at the terminal.
        step: saved step; -1 where nothing was saved.
        folder: of the checkpoint; "" where nothing was saved.
        reason: the fault that began it.
        dead: global ranks that were lost.
        epochs: how many times a plan was made.
        duration_s: from the fault to the end, seconds.
    """

    code: int
    sentence: str
    step: int = -1
    folder: str = ""
    reason: str = ""
    dead: tuple[int, ...] = ()
    epochs: int = 0
    duration_s: float = 0.0
