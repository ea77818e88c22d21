"""How the launchers of a job meet, and what they share from then on."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from torch.distributed.elastic.agent.server.api import WorkerGroup, WorkerSpec

from relkit.launch.control.job_links import JobLinks
from relkit.launch.elastic import exit_barrier
from relkit.launch.elastic.outside_store import StorePlace
from relkit.launch.elastic.static_meetings import StaticMeetings
from relkit.launch.job.attempt import NO_WORKERS, Attempt, Channels, Workers
from relkit.launch.job.bounded_calls import BoundedCalls
from relkit.launch.job.exchange import (
    ExchangeBroken,
    Mailbox,
    MemoryMailbox,
)
from relkit.launch.job.node_name import node_name
from relkit.launch.job.rendezvous import forget_workers_store, limit_waits
from relkit.launch.job.sealed_mailbox import store_mailbox
from relkit.launch.job.sealed_rendezvous import SealedBackend, seal
from relkit.launch.job.session_key import agree
from relkit.launch.job.settings import LocalRank, Log
from relkit.launch.job.store_host import holds_store, own_address, store_endpoint
from relkit.net.operator_secret import OperatorSecret
from relkit.process import identity


class JobMeeting:
    """One launcher's part in the rendezvous of a job, whose handler is torch's.

    Args:
        spec: of the workers.
        secret: the operator's; None where there is none.
        log: writes one line to the terminal.
    """

    def __init__(self, spec: WorkerSpec, secret: OperatorSecret | None, log: Log) -> None:
        self.handler, self._spec = spec.rdzv_handler, spec
        self._secret, self._log = secret, log
        self._session = b""
        self._sealed: SealedBackend | None = None
        self._static: StaticMeetings | None = None
        self._links = JobLinks(log)
        # In which a node says that the job has failed there, or is done.
        self._end_notes: Mailbox = MemoryMailbox()
        self._store_place = StorePlace.unknown()

    def begin(self) -> None:
        """Before the first rendezvous; what services do to the handler is done."""
        self._sealed = seal(self.handler, self._job_key(), self._log, node_name())
        self._static = StaticMeetings(self._spec, self._log)
        limit_waits(
            self.handler, self._static.calls, self._log, lambda: self._store_place.is_outside
        )

    @property
    def static(self) -> StaticMeetings:
        """What makes the calls to the handler, of whatever kind, and knows static ones."""
        assert self._static is not None, "begin() comes first"
        return self._static

    @property
    def calls(self) -> BoundedCalls:
        """Makes calls to the handler, which may not return."""
        return self.static.calls

    def forget_workers_store(self) -> None:
        """See rendezvous.forget_workers_store."""
        forget_workers_store(self.handler)

    def agree(self, worker_group: WorkerGroup) -> None:
        """The nodes have met: have a key that is theirs, and links to each other.

        From here on the store is for the next rendezvous; whatever else is said goes by the links.

        Raises:
            SecretMismatch: not all have the same.
            ExchangeBroken: the store does not answer, and there is a secret.
        """
        self._session = b""
        try:
            self._session = agree(
                self._store_notes(worker_group, "secret"),
                self._job_key(),
                holds_store=holds_store(worker_group.store),
            )
        except ExchangeBroken:
            if self._secret is not None:
                raise
        if self._sealed is not None:
            self._sealed.hold()
        attempt = self.attempt(worker_group, 0, NO_WORKERS)
        self._links.begin(attempt, attempt.meeting_mailbox("links"))

    def attempt(self, worker_group: WorkerGroup, restarts_left: int, workers: Workers) -> Attempt:
        """What is known of an attempt once its nodes have met."""
        nodes = int(worker_group.group_world_size or 1)
        return Attempt(
            self.job_id,
            world_size=worker_group.workers[0].world_size,
            ranks=tuple(LocalRank(worker.global_rank, 0) for worker in worker_group.workers),
            number=self.restarts(restarts_left),
            node=int(worker_group.group_rank or 0),
            nodes=nodes,
            host=node_name(),
            restarts_left=restarts_left,
            key=self._session,
            holds_store=nodes > 1 and holds_store(worker_group.store),
            can_meet_again=self.handler.get_backend() != "static",
            channels=Channels(
                self._links.mailbox, partial(self._store_notes, worker_group), self._links.led
            ),
            own_address=partial(self._own_address, worker_group),
            workers=workers,
        )

    def begin_attempt(self, attempt: Attempt) -> None:
        """Before there are workers, and once services are done with those before."""
        self._links.starts()
        self._end_notes = attempt.mailbox("end")
        exit_barrier.begin(self._end_notes)
        self._store_place = StorePlace.of(attempt)
        if self.static.is_static:
            self.static.begin(attempt.mailbox("again"))

    def exit_barrier(self, by_torch: Callable[[], None], timeout_s: float) -> None:
        """The workers of this node are done: wait for the other nodes.

        Args:
            by_torch: its own barrier.
            timeout_s: the longest to wait, s.
        """
        notes = self._end_notes
        if exit_barrier.reaches_all(notes):
            exit_barrier.wait_by_notes(notes, timeout_s)
        else:
            exit_barrier.wait_for_others(by_torch, notes)

    def report_failure(self, store: object) -> None:
        """See exit_barrier.report_failure."""
        exit_barrier.report_failure(self._end_notes, self.static.close, partial(holds_store, store))

    def leave(self, store: object, *, has_succeeded: bool) -> None:
        """The launcher ends: nothing else uses the store, nor the links; see exit_barrier."""
        try:
            if has_succeeded:
                exit_barrier.leave_store(self._end_notes, is_host=holds_store(store))
        finally:
            self._links.close()

    def restarts(self, left: int) -> int:
        """How many there were.

        Args:
            left: how many there may be.
        """
        return int(self._spec.max_restarts) - left

    @property
    def job_id(self) -> str:
        """The run; of its own where torchrun's default would be every job's."""
        job_id = str(self.handler.get_run_id())
        return f"none-{identity.own_name()}" if job_id == "none" else job_id

    def _job_key(self) -> bytes:
        secret = self._secret
        return b"" if secret is None else secret.for_job(self.handler.get_run_id())

    def _store_notes(self, worker_group: WorkerGroup, purpose: str) -> Mailbox:
        nodes, node = int(worker_group.group_world_size or 1), int(worker_group.group_rank or 0)
        store: Any = worker_group.store
        return store_mailbox(store, node, nodes, purpose, self._session, self._log)

    def _own_address(self, worker_group: WorkerGroup, peer: str) -> str:
        store_host, _ = store_endpoint(worker_group.store)
        return worker_group.spec.local_addr or own_address(peer or store_host)
