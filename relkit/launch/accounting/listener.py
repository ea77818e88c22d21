"""Accounts of a job's recoveries, from the phases that its agent tells."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from torch.distributed.elastic.multiprocessing import SignalException

from relkit.accounting.progress import GOES_ON, HUNG
from relkit.launch.accounting.accounts import Accounts, Fault, fault_elsewhere, fault_of
from relkit.launch.job.attempt import Attempt
from relkit.launch.job.leaves_job import LeavesJob
from relkit.launch.job.phases import LookEnd, Phase, PhaseListener
from relkit.launch.job.settings import ExitStatus

if TYPE_CHECKING:
    from relkit.hang.suspicion.watch import Turn

HANG = "hang"
_NODES = "nodes changed"


class HangWatch(Protocol):
    """What the watch for hangs knows."""

    @property
    def hung(self) -> bool:
        """The job hangs, and has not moved since that was detected."""

    @property
    def remote_failure(self) -> str:
        """What node 0 was told of a worker of another node that failed; "" for nothing."""

    def take_suspicions(self) -> Sequence[Turn]:
        """What has become of suspicions since the last call."""


class Saved(Protocol):
    """A checkpoint."""

    @property
    def step(self) -> int:
        """Its number."""


@dataclass(frozen=True, slots=True)
class OtherServices:
    """What some services know of a fault.

    Args:
        node_leaves: why another node is about to leave, "" where none is.
        saved: what try-to-persist has saved after a fault; None for nothing.
        standbys_used: how many of the workers of the newest start were warm standbys.
    """

    node_leaves: Callable[[], str] = lambda: ""
    saved: Callable[[], Saved | None] = lambda: None
    standbys_used: Callable[[], int] = lambda: 0


class AccountedPhases(PhaseListener):
    """Only watches the clock, and notes what it is told.

    Args:
        accounts: of this run, not begun.
        watch: for hangs.
        others: see there.
    """

    def __init__(
        self, accounts: Accounts, watch: HangWatch, others: OtherServices = OtherServices()
    ) -> None:
        self._accounts, self._watch, self._others = accounts, watch, others
        self._begin_s = self._looked_s = self._captured_s = 0.0
        self._hung_since_s: float | None = None
        self._hung_seen_s = 0.0

    def job_begins(self, job_id: str) -> None:
        """See PhaseListener."""
        self._accounts.begin(job_id)

    def job_ended(self, how: str, why: str) -> None:
        """See PhaseListener."""
        self._note_suspicions()
        self._accounts.ended(how, why)

    def phase(self, phase: Phase) -> AbstractContextManager[None]:
        """See PhaseListener."""
        if phase is Phase.SAVE and not self._accounts.in_fault:
            return nullcontext()
        return self._accounts.phase(phase.value)

    def starts(self) -> None:
        """See PhaseListener."""
        # The monitor forgets those of the attempt before.
        self._note_suspicions()
        self._accounts.starts()

    def started(self, attempt: Attempt) -> None:
        """See PhaseListener."""
        self._looked_s, self._hung_since_s = time.monotonic(), None
        self._accounts.started(attempt, self._others.standbys_used())

    def saved(self, step: int, by: str) -> None:
        """See PhaseListener."""
        if self._accounts.in_fault:
            self._accounts.saved(step, by)

    def look_begins(self) -> None:
        """See PhaseListener."""
        self._accounts.look()
        self._note_suspicions()
        self._note_hang()
        self._begin_s = time.monotonic()

    def look_ended(self, end: LookEnd, ends: Mapping[int, ExitStatus], *, is_led: bool) -> None:
        """See PhaseListener."""
        if end is LookEnd.ABORTED:
            self._fault_of_hang()
        if is_led:
            self._note_save(ends)
        if end is LookEnd.RESTARTS:
            self._fault_of_hang()
        elif end is LookEnd.FAILED:
            # torch has stopped the other workers before it returned.
            self._accounts.fault(fault_of(ends, "a worker failed", self._looked_s))
            since_s = max(self._begin_s, self._captured_s)
            self._accounts.took(Phase.STOP.value, time.monotonic() - since_s)
        if end not in (LookEnd.ABORTED, LookEnd.BROKEN):
            self._looked_s = self._begin_s

    def failed(self, sentence: str, ends: Mapping[int, ExitStatus]) -> None:
        """See PhaseListener."""
        fault = fault_of(ends, sentence, self._looked_s)
        if told := self._watch.remote_failure:
            # It was first: workers here have lost their peer.
            fault = fault_elsewhere(told, fault.since_s)
        if why := self._others.node_leaves():
            fault = Fault("node left", why, since_s=fault.since_s)
        elif self._hung_since_s is not None:
            fault = Fault(HANG, sentence, fault.rank, self._hung_since_s)
        self._accounts.fault(fault)

    def captured(self) -> None:
        """See PhaseListener."""
        self._captured_s = time.monotonic()

    def meets_again(self) -> None:
        """See PhaseListener."""
        # A fault that nobody here has seen: other nodes wait to meet again.
        told = self._watch.remote_failure
        fault = Fault(_NODES, "other nodes joined, left or came back")
        self._accounts.fault(fault_elsewhere(told) if told else fault)

    def shuts_down(self, ended_by: BaseException | None, signal_name: str) -> None:
        """See PhaseListener."""
        if isinstance(ended_by, LeavesJob):
            self._accounts.fault(Fault("node leaves", str(ended_by.why)))
        elif isinstance(ended_by, SignalException):
            sentence = f"the launcher got {signal_name}"
            self._accounts.fault(Fault(f"launcher got {signal_name}", sentence))

    def _note_suspicions(self) -> None:
        for turn in self._watch.take_suspicions():
            self._accounts.suspicion(turn)

    def _note_hang(self) -> None:
        """From when on the job has hung, as long as it hangs."""
        if not self._watch.hung:
            if self._hung_since_s is not None:
                self._accounts.health(GOES_ON)
            self._hung_since_s = None
        elif self._hung_since_s is None:
            self._hung_seen_s = time.monotonic()
            moved_s = self._accounts.moved_s
            self._hung_since_s = self._hung_seen_s if moved_s is None else moved_s
            self._accounts.health(HUNG)

    def _fault_of_hang(self) -> None:
        """The job hangs, has been captured and judged, and its workers are stopped."""
        if self._hung_since_s is None:
            return
        fault = Fault(HANG, "the job hung", -1, self._hung_since_s, self._hung_seen_s)
        if self._accounts.fault(fault):
            self._accounts.took(Phase.CAPTURE.value, time.monotonic() - self._hung_seen_s)

    def _note_save(self, ends: Mapping[int, ExitStatus]) -> None:
        """Workers were led through a fault in the look that ends now."""
        fault = fault_of(ends, "a fault that try-to-persist has handled", self._looked_s)
        if self._hung_since_s is not None:
            fault = Fault(HANG, "the job hung", -1, self._hung_since_s, self._begin_s)
        if not self._accounts.fault(replace(fault, seen_s=self._begin_s)):
            return
        self._captured_s = time.monotonic()
        self._accounts.took(Phase.SAVE.value, self._captured_s - self._begin_s)
        if saved := self._others.saved():
            self._accounts.saved(saved.step, "try-to-persist")
