"""Spares as a service of a job that may lose nodes and go on."""

from __future__ import annotations

import signal
import time
from contextlib import suppress
from functools import partial
from typing import Protocol

from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.elastic.rendezvous.api import RendezvousError

from relkit.errors import RelkitError
from relkit.launch.job.attempt import Attempt
from relkit.launch.job.bounded_calls import NoAnswer
from relkit.launch.job.leaves_job import LeavesJob
from relkit.launch.job.node_name import node_name
from relkit.launch.job.service import Action, Job, Leave, Service, Stop, WorkerState
from relkit.launch.job.settings import Log
from relkit.launch.spares.dead_member import has_lost_a_member, look_at
from relkit.launch.spares.settings import NodeGivenUp
from relkit.launch.spares.spare_rendezvous import SpareRendezvous

# How a node that is convicted puts it; what follows is the reason.
_LEAVES = "leaves the job: "
# The longest that it may take to note a failure, before ranks are captured, s.
_NOTE_S = 1.0


class Excludes(Protocol):
    """What may have a node leave, as long as enough are left."""

    min_nodes: int


class SpareService(Service):
    """Has nodes meet as a SpareRendezvous says; gives a node up on which failures begin.

    Args:
        meeting: this node's part.
        excludes: may have fewer nodes left where one that leaves can be replaced.
        log: writes one line to the terminal.
    """

    def __init__(self, meeting: SpareRendezvous, excludes: Excludes, log: Log) -> None:
        self._meeting, self._excludes, self._log = meeting, excludes, log
        self._job: Job | None = None
        self._has_started = self._grows = False
        self._min_nodes = 1
        self._started_s = 0.0
        self._given_up = ""

    @property
    def waits(self) -> bool:  # type: ignore[override]
        """See Service."""
        return self._meeting.waits_as_spare

    def job_begins(self, job: Job) -> None:
        """See Service."""
        self._job = job
        self._meeting.attach(job.rendezvous, lambda: job.restarts)
        job.rank_store = self._meeting.first_exchange

    def before_workers(self, attempt: Attempt) -> None:
        """What the job has used before this node came; and how few nodes it may have now."""
        is_first, self._has_started = not self._has_started, True
        if not self._meeting.is_on or self._job is None:
            return
        if is_first:
            left = attempt.number + attempt.restarts_left - self._meeting.membership.restarts
            self._job.restarts_left = max(0, min(attempt.restarts_left, left))
            self._min_nodes = self._excludes.min_nodes
        self._excludes.min_nodes = 1 if self._meeting.may_replace else self._min_nodes

    def workers_started(self, attempt: Attempt) -> None:
        """See Service."""
        self._started_s = time.monotonic()

    def takes_over(self, attempt: Attempt, failure: str) -> Action | None:
        """See Service."""
        self._given_up = ""
        return None

    def worker_failed(self, attempt: Attempt, failure: str) -> None:
        """At once: workers of other nodes that have lost this one fail a moment later."""
        if self._meeting.is_on and self._job is not None:
            trained_s = time.monotonic() - self._started_s
            with suppress(RendezvousError, NoAnswer):
                self._given_up = self._job.rendezvous_calls.call(
                    self._meeting.failed, trained_s, timeout_s=_NOTE_S
                )

    def failure_captured(self, attempt: Attempt, failure: str) -> None:
        """See Service."""
        if self._given_up and self._has_lost_another():
            why = f"{self._given_up}: another node was lost"
            self._log(f"this node ({node_name()}) stays, although {why}")
            self._given_up = ""

    def looked(self, attempt: Attempt, state: WorkerState) -> Action | None:
        """See Service."""
        if state is WorkerState.FAILED and (why := self._given_up):
            return Leave(NodeGivenUp(f"this node ({node_name()}) {_LEAVES}{why}"))
        return None

    def leaves(self, why: RelkitError) -> None:
        """See Service."""
        self._meeting.leaving_why = str(why).partition(_LEAVES)[2] or str(why)

    def before_stop(self, attempt: Attempt, stop: Stop) -> int | None:
        """See Service."""
        self._grows = stop is Stop.MEET_AGAIN and self._meeting.grows
        return None

    def stopped(self, attempt: Attempt, stop: Stop) -> None:
        """See Service."""
        if self._grows and self._job is not None:
            # Ranks of another number go on from disk: from the last step that these have made.
            self._job.breaks_off("the job takes in another node")

    def close(self) -> None:
        """Where this launcher was asked to end, have a spare step in at once; it would a little
        later also where this fails."""
        ended_by = None if self._job is None else self._job.ended_by
        if not isinstance(ended_by, SignalException) or isinstance(ended_by, LeavesJob):
            return
        why = f"its launcher got {signal.Signals(ended_by.sigval).name}"
        meeting = self._meeting
        if self._job and meeting.is_on and self._has_started and meeting.stop(why):
            with suppress(RendezvousError):
                self._job.leave_rendezvous()

    def _has_lost_another(self) -> bool:
        """Whether the loss of another node may be why workers failed here."""
        job = self._job
        assert job is not None
        look = partial(job.rendezvous_calls.call, look_at, job.rendezvous, timeout_s=_NOTE_S)
        with suppress(RendezvousError, NoAnswer):
            return has_lost_a_member(look, self._meeting.silence_limit_s)
        return False
