"""Looks at a job that may fail: that is said, and is nothing to the job."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from typing import TypeVar

from relkit.errors import RelkitError
from relkit.launch.job.settings import JobAborted, Log
from relkit.log_lines import warning

T = TypeVar("T")
# What a host may refuse at any time: descriptors, files, memory, threads (RuntimeError), modules.
_REFUSED = (OSError, MemoryError, ImportError, RuntimeError, subprocess.SubprocessError)
# The same look is not complained about again before, s.
_QUIET_S = 600.0
_MAX_REASON = 200


class Looks:
    """Takes a launcher's looks at its job.

    Args:
        log: writes one line to the terminal.
        clock: monotonic seconds.

    Attributes:
        is_blind: those of this moment have failed, and nothing is to wait for what they see.
    """

    def __init__(self, log: Log, clock: Callable[[], float] = time.monotonic) -> None:
        self._log, self._clock = log, clock
        self._said_s: dict[str, float] = {}
        self.is_blind = False

    def take(self, what: str, look: Callable[[], T], otherwise: T) -> T:
        """What a look gives.

        Args:
            what: names it, for the line that says that it failed.
            look: only what watches: what ends a job on purpose goes through.
            otherwise: given where it fails; the next one may succeed.
        """
        try:
            return look()
        except JobAborted:
            raise
        except (RelkitError, *_REFUSED) as error:
            self.say(what, error)
            return otherwise

    def say(self, what: str, error: Exception) -> None:
        """Say that it failed, once in a while."""
        now_s = self._clock()
        said_s = self._said_s.get(what)
        if said_s is None or now_s - said_s >= _QUIET_S:
            self._said_s[what] = now_s
            self._log(warning(f"{what} failed, which is nothing to the job: {_reason(error)}"))


def _reason(error: Exception) -> str:
    (line, *_) = str(error).splitlines() or [""]
    # What is not worded for people says little without its name.
    kind = "" if isinstance(error, (RelkitError, OSError)) else type(error).__name__
    return ": ".join(filter(None, (kind, line)))[:_MAX_REASON]
