"""The agent's part in try-to-persist: it lets nobody stop workers that are led through a fault."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping

from relkit.launch.job.exit_status import peek_exit
from relkit.launch.job.on_hang import OnHang
from relkit.launch.job.settings import ExitStatus
from relkit.launch.job.worker_ends import signal_group
from relkit.launch.recovery.persist_host import PersistHost
from relkit.ttp.save_outcome import EXIT_REFUSED, EXIT_SAVE_FAILED, EXIT_SAVED

# A worker that has not left this long after it was told is not going to.
LEAVE_S = 10.0
_LATE_S = 5.0
_CODES = (EXIT_SAVED, EXIT_REFUSED, EXIT_SAVE_FAILED)


class FaultRecovery:
    """One attempt's workers on this node.

    Args:
        persist: of this launcher.
        pids: rank -> process.
    """

    def __init__(self, persist: PersistHost, pids: Mapping[int, int]) -> None:
        self._persist, self._pids = persist, dict(pids)
        self._since_s: float | None = None
        self._over_since_s: float | None = None
        persist.watch(self._pids)

    @property
    def began(self) -> bool:
        """The workers are led, or have been."""
        return self._since_s is not None

    def holds(self, ends: Mapping[int, ExitStatus], failure: str, action: OnHang | None) -> bool:
        """Whether the workers are led now; to be called until they are not.

        Args:
            ends: how workers of this node have ended, by rank.
            failure: a sentence if one of them has just failed.
            action: what the monitor wants done about a hang.
        """
        persist = self._persist
        persist.look()
        if self._since_s is None:
            engaged = (failure or action is not None) and persist.engaged
            if not engaged and not persist.leading:
                return False
            self._since_s = time.monotonic()
            if action is not None:
                persist.hung("the job hangs")
        all_ended = len(ends) == len(self._pids)
        if all_ended:
            persist.tell()
        elif self._should_be_gone(ends):
            self._kill(ends)
        return not all_ended

    def save_first(self, name: str) -> None:
        """Asked to end (a preemption, a Ctrl-C): what is committed is saved before.

        Args:
            name: of the signal that the launcher got.
        """
        if not self._persist.engaged or self._all_gone():
            return
        self._persist.save(f"the launcher got {name}", self._all_gone)
        until_s = time.monotonic() + LEAVE_S
        while not self._all_gone() and time.monotonic() < until_s:
            time.sleep(0.02)

    def _should_be_gone(self, ends: Mapping[int, ExitStatus]) -> bool:
        """Workers of this node that still run will not end by themselves any more."""
        now_s = time.monotonic()
        assert self._since_s is not None
        if now_s - self._since_s > self._persist.limits.overall_s + _LATE_S:
            return True
        if not exit_code(self._persist, ends):
            return False
        if self._over_since_s is None:
            self._over_since_s = now_s
        return now_s - self._over_since_s > LEAVE_S

    def _kill(self, ends: Mapping[int, ExitStatus]) -> None:
        for rank, pid in self._pids.items():
            if rank not in ends:
                signal_group(pid, signal.SIGKILL)

    def _all_gone(self) -> bool:
        return all(peek_exit(pid) is not None for pid in self._pids.values())


def exit_code(persist: PersistHost, ends: Mapping[int, ExitStatus]) -> int:
    """The exit code by which a fault ended; 0 where there was none, or it has not."""
    if persist.outcome is not None:
        return persist.outcome.code
    # On a node whose controller did not lead, workers have told.
    codes = {end.exit_code for end in ends.values()}
    return next((code for code in _CODES if code in codes), 0)
