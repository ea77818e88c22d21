"""torch's elastic agent with the monitor in it."""

from __future__ import annotations

import contextlib
import math
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from torch.distributed.elastic.agent.server.api import RunResult, WorkerGroup, WorkerState
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.elastic.rendezvous.api import RendezvousError

from relkit.errors import RelkitError
from relkit.launch.agent_services import AgentServices
from relkit.launch.control.job_links import JobLinks
from relkit.launch.flash_checkpoint.persist_plan import SavedStep
from relkit.launch.hang.attempt import WatchedAttempt
from relkit.launch.job import exit_barrier
from relkit.launch.job.added_environment import added_environment
from relkit.launch.job.attempt import Attempt
from relkit.launch.job.exchange import (
    ExchangeBroken,
    Mailbox,
    MemoryMailbox,
    StoreMailbox,
    can_connect_again,
    own_connection,
    wait_for_notes,
    wait_for_thread,
)
from relkit.launch.job.exit_status import exit_status, how_rank_ended, peek_exit
from relkit.launch.job.leaves_job import LeavesJob
from relkit.launch.job.looks import Looks
from relkit.launch.job.node_name import node_name
from relkit.launch.job.on_hang import OnHang
from relkit.launch.job.rendezvous import forget_workers_store, leave_rendezvous, limit_waits
from relkit.launch.job.sealed_mailbox import SealedMailbox
from relkit.launch.job.sealed_rendezvous import SealedBackend, seal
from relkit.launch.job.session_key import SecretMismatch, agree
from relkit.launch.job.settings import ExitStatus, JobAborted, LocalRank
from relkit.launch.job.static_meetings import StaticMeetings
from relkit.launch.job.worker_ends import ends_now, look_first, settle, worker_files
from relkit.launch.job.worker_shutdown import shut_down
from relkit.launch.live_observer import live_observer, seen_environment
from relkit.launch.netcheck.node_info import holds_store, own_address, store_endpoint
from relkit.launch.recovery.fault_recovery import FaultRecovery, wake_stopped
from relkit.launch.straggler.exclusion import Excluded
from relkit.net.operator_secret import derive
from relkit.post_mortem.collector import HostDeaths, WorkerFiles
from relkit.process import identity
from relkit.ranks import RankSet

if TYPE_CHECKING:
    from relkit.launch.netcheck.network_check import NetworkCheck

# A worker of a hung job that has not ended this long after SIGTERM is not going to.
HUNG_SHUTDOWN_S = 5
# How long the host of the store stays after a failure, for nodes that have not noticed it yet.
STAY_S = 5.0


class MonitoredAgent(LocalElasticAgent):
    """LocalElasticAgent that lets a Monitor watch its workers.

    It changes nothing in how workers are started, stopped and restarted, except that a hung job
    is restarted or ended where --on-hang says so.
    """

    services: AgentServices
    _exit_statuses: Mapping[int, ExitStatus] = MappingProxyType({})
    _seen_alive_unix_s: dict[int, float]
    _hung = False
    _hang_persisted = False
    _recovery: FaultRecovery | None = None
    _deaths: HostDeaths | None = None
    _attempt = Attempt("")
    _session = b""
    _started = False
    looks = Looks(lambda _line: None)  # the launcher sets its own
    _end_notes: Mailbox = MemoryMailbox()
    _meetings: StaticMeetings
    _sealed: SealedBackend | None = None
    _links: JobLinks | None = None

    def run(self, role: str = "default") -> RunResult:
        """Run the job to its end; torch calls this once."""
        handler, log = self._worker_group.spec.rdzv_handler, self.services.log
        self._sealed = seal(handler, self._job_key(), log, node_name())
        self._meetings = StaticMeetings(self._worker_group.spec, log)
        limit_waits(handler, self._meetings.calls, log)
        try:
            result: RunResult | None = super().run(role)
        except JobAborted:
            self._report_failure()
            raise
        finally:
            self._meetings.stop()
        # None where the rendezvous was left in an orderly way.
        if result is not None and result.is_failed():
            self._report_failure()
        return result  # type: ignore[return-value]  # as torch's own

    def _report_failure(self) -> None:
        """Notify the other nodes; the host of the store stays until all have failed as well.

        Were it to leave first, the others would see a dead store instead of the failure.
        """
        # In a thread, as a call to a store that is cut off does not return.
        thread = threading.Thread(target=self._leave_ended_note, name="relkit-ended", daemon=True)
        thread.start()
        wait_for_thread(thread, self._end_notes, 2 * STAY_S)

    def _leave_ended_note(self) -> None:
        notes = self._end_notes
        try:
            notes.put(exit_barrier.ended_key(notes.node), b"1")
            self._meetings.close()
            if notes.nodes > 1 and holds_store(self._worker_group.store):
                ended = [exit_barrier.ended_key(node) for node in range(notes.nodes)]
                wait_for_notes(notes, ended, STAY_S)
        except ExchangeBroken:
            return

    def _exit_barrier(self) -> None:
        # torch's keeps its connection busy: where that is the only one, no note gets through.
        store: Any = self._worker_group.store
        if self._end_notes.nodes == 1 or (not self._session and can_connect_again(store)):
            exit_barrier.wait_for_others(super()._exit_barrier, self._end_notes)
            return
        # Read by torch's health check.
        self._in_exit_barrier = True
        try:
            exit_barrier.wait_by_notes(self._end_notes, self._exit_barrier_timeout)
        finally:
            self._in_exit_barrier = False

    @property
    def started(self) -> bool:
        """Workers of the present rendezvous have been started."""
        return self._started

    def _rendezvous(self, worker_group: WorkerGroup) -> None:
        self._started = False
        forget_workers_store(worker_group.spec.rdzv_handler)
        # In a thread, as no signal is handled inside a store's client. How long nodes may take to
        # meet is torch's to decide.
        self._meetings.calls.call(super()._rendezvous, worker_group, timeout_s=math.inf)
        self._meetings.count_restarts(self)
        self._connect_exit_barrier(worker_group)
        self._session = self._agree(worker_group)
        if self._sealed is not None:
            self._sealed.hold()
        if self.services.network is not None and not self._passed(
            self.services.network, worker_group
        ):
            self._rendezvous(worker_group)

    def _connect_exit_barrier(self, worker_group: WorkerGroup) -> None:
        # The barrier may hold its connection for minutes, and a node that leaves meanwhile needs
        # one too. Made now, as torch goes on trying to reach a host that has gone for a minute.
        store: Any = worker_group.store
        with contextlib.suppress(RuntimeError, OSError):
            self._store = own_connection(store)  # type: ignore[assignment]

    def _agree(self, worker_group: WorkerGroup) -> bytes:
        """The key of this rendezvous; b"" where there is no operator's secret."""
        self._session = b""
        try:
            return agree(
                self._mailbox(worker_group, "secret"),
                self._job_key(),
                holds_store=holds_store(worker_group.store),
            )
        except SecretMismatch as why:
            raise self._leaving(worker_group, why) from why
        except ExchangeBroken as error:
            if self.services.secret is not None:
                raise self._leaving(worker_group, error) from error
            return b""

    def _job_id(self) -> str:
        job_id = str(self._worker_group.spec.rdzv_handler.get_run_id())
        # torchrun's default id: every such job has it, and their files must not mix.
        return f"none-{identity.own_name()}" if job_id == "none" else job_id

    def _job_key(self) -> bytes:
        secret = self.services.secret
        run_id = self._worker_group.spec.rdzv_handler.get_run_id()
        return b"" if secret is None else secret.for_job(run_id)

    def _passed(self, network: NetworkCheck, worker_group: WorkerGroup) -> bool:
        """Run the network check; False where nodes leave and the rest has to meet again."""
        # Only here: a job without the check loads nothing of it.
        from relkit.launch.netcheck.network_check import NodeFailedCheck

        try:
            return network.passed(self._attempt_of(worker_group))
        except NodeFailedCheck as why:
            raise self._leaving(worker_group, why) from why

    def _leaving(self, worker_group: WorkerGroup, why: RelkitError) -> LeavesJob:
        try:
            leave_rendezvous(worker_group.spec.rdzv_handler, self._meetings.calls)
        except RendezvousError as error:
            self.services.log(f"the other nodes will notice only later that this one left: {error}")
        return LeavesJob(why)

    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        spec = worker_group.spec
        job_id = self._job_id()
        job_dir, extra = self.services.prepare(job_id, spec.local_world_size)
        attempt = replace(self._attempt_of(worker_group), job_dir=job_dir)
        stragglers = self.services.stragglers
        if stragglers is not None:
            stragglers.forget_earlier_job(job_dir, int(worker_group.group_rank or 0))
        self._exit_statuses, self._seen_alive_unix_s, self._hung = {}, {}, False
        self._hang_persisted = False
        persist = self.services.persist
        if persist is not None:
            extra = {**extra, **persist.begin(attempt)}
        if self.services.slots is not None:
            extra = {**extra, **self.services.slots.begin(attempt)}
        is_timed = stragglers is not None and job_dir is not None
        sockets, world_size = self.services.sockets, attempt.world_size
        extra |= seen_environment(sockets, is_timed=is_timed)
        extra |= self._more_environment(job_dir)
        # Before there are workers to watch, as a store may be slow to connect to.
        self._end_notes = attempt.mailbox("end")
        if self._meetings.is_static:  # of a large job, each mailbox is thousands of connections
            self._meetings.begin(attempt.mailbox("again"))
        links = self._links = self._links or JobLinks(self.services.log)
        mailbox = links.begin(attempt)
        straggler_mailbox = attempt.mailbox("straggler")
        observer = live_observer(job_dir, sockets, self.services.monitor, world_size)
        notes = None if sockets is None else sockets.path
        deaths = self._deaths = HostDeaths(self._worker_files, notes=notes)
        with added_environment(extra):
            pids: dict[int, Any] = super()._start_workers(worker_group)
        self._started = True
        look_first(self._pcontext, lambda: self._exit_statuses, lambda: self.looks.is_blind)
        ranks = tuple(
            LocalRank(worker.global_rank, int(pids[worker.local_rank]))
            for worker in worker_group.workers
        )
        attempt = self._attempt = replace(attempt, ranks=ranks)
        deaths.look(each.pid for each in ranks)
        if persist is not None:
            self._recovery = FaultRecovery(persist, {each.rank: each.pid for each in ranks})
        self.services.log(
            f"job {job_id}: watching rank {RankSet.of(r.rank for r in ranks).fold()}"
            f" of {world_size} on {socket.gethostname()}"
        )
        self.services.monitor.begin(
            WatchedAttempt(
                job_id=job_id,
                world_size=world_size,
                observer=observer,
                mailbox=mailbox,
                ranks=lambda: ranks,
                exit_statuses=lambda: ends_now(self._exit_statuses, ranks, self._exit_status),
                deaths=deaths,
            )
        )
        if stragglers is not None:
            stragglers.begin(attempt, straggler_mailbox)
        return pids

    def _more_environment(self, _job_dir: Path | None) -> dict[str, str]:
        return {}

    def _attempt_of(self, worker_group: WorkerGroup) -> Attempt:
        """What is known of an attempt once its nodes have met."""
        spec, nodes = worker_group.spec, int(worker_group.group_world_size or 1)
        return Attempt(
            self._job_id(),
            world_size=worker_group.workers[0].world_size,
            ranks=tuple(LocalRank(worker.global_rank, 0) for worker in worker_group.workers),
            number=spec.max_restarts - self._remaining_restarts,
            node=int(worker_group.group_rank or 0),
            nodes=nodes,
            host=node_name(),
            restarts_left=self._remaining_restarts,
            key=self._session,
            holds_store=nodes > 1 and holds_store(worker_group.store),
            can_meet_again=spec.rdzv_handler.get_backend() != "static",
            open_mailbox=partial(self._mailbox, worker_group),
            own_address=partial(self._own_address, worker_group),
        )

    def _mailbox(self, worker_group: WorkerGroup, purpose: str) -> Mailbox:
        nodes = int(worker_group.group_world_size or 1)
        node = int(worker_group.group_rank or 0)
        store: Any = worker_group.store
        if nodes == 1 or store is None:
            return MemoryMailbox()
        try:
            prefix = f"{purpose}-round"  # each rendezvous has keys of its own
            inner = StoreMailbox(store, node, nodes, prefix)
            if not self._session:
                return inner
            key = derive(self._session, "mailbox", prefix.encode())
            return SealedMailbox(inner, key, self.services.log)
        except ExchangeBroken as error:
            self.services.log(f"{error}; this node judges only its own ranks")
            return MemoryMailbox()

    def _own_address(self, worker_group: WorkerGroup, peer: str = "") -> str:
        """This node's address on the way to a peer, or to the store's host."""
        return worker_group.spec.local_addr or own_address(
            peer or store_endpoint(worker_group.store)[0]
        )

    def leave_store(self) -> None:
        """The job has succeeded, and nothing else uses the store; see exit_barrier.leave_store."""
        exit_barrier.leave_store(self._end_notes, is_host=holds_store(self._worker_group.store))

    def close_links(self) -> None:
        """Leave the other launchers; the monitor has ended."""
        if self._links is not None:
            self._links.close()

    def _persist_slots(self, trigger: str) -> None:
        """The job breaks off: have the newest step in memory persisted, in the background."""
        if self.services.slots is None:
            return
        outcome = self.services.persist.outcome if self.services.persist is not None else None
        is_saved = outcome is not None and outcome.step >= 0
        by_ttp = SavedStep(outcome.step, outcome.folder) if outcome and is_saved else None
        persist = partial(self.services.slots.persist, trigger, by_ttp)
        self.looks.take("flash checkpoint", persist, None)

    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        failure = self._poll_exits(worker_group)
        if failure:
            pids = {w.global_rank: int(w.id) for w in worker_group.workers}
            settle(pids, lambda: self._exit_statuses, lambda: self._poll_exits(worker_group))
        lead = self._recovery
        # Do not return in between: torch restarts the workers when it sees another node come back.
        while lead is not None and self._is_led(lead, failure):
            time.sleep(min(worker_group.spec.monitor_interval, 0.1))
            self._poll_exits(worker_group)
        if lead is not None and lead.began:
            self._persist_slots(failure or "a fault that try-to-persist has handled")
            if self.services.monitor.action() is OnHang.ABORT:
                raise JobAborted("the job hung, was saved and ended (--on-hang abort)")
            return super()._monitor_workers(worker_group)  # type: ignore[no-any-return]
        stragglers = self.services.stragglers
        why = stragglers.leaves() if stragglers is not None else ""
        if why:
            raise self._leaving(worker_group, Excluded(f"this node leaves the job: {why}"))
        if failure:  # here, before torch sees it: it stops the other workers in the same call
            self._failed(failure)
        if self.services.monitor.hung and not self._hang_persisted:
            self._hang_persisted = True
            self._persist_slots("the job hangs")
        action = self.services.monitor.action()
        if action is OnHang.SAVE:
            action = None  # not under try-to-persist: there is nothing that could save it
        if action is OnHang.RESTART and self._remaining_restarts > 0:
            self.services.log("restarting the workers")
            return RunResult(state=WorkerState.UNHEALTHY)
        if action is not None:
            left = "; no restart is left" if action is OnHang.RESTART else ""
            raise JobAborted(f"the job hung and was ended (--on-hang {action}{left})")
        result: RunResult = super()._monitor_workers(worker_group)
        if result.state is WorkerState.FAILED and not failure:
            self._take_failures(result)
        return result

    def _is_led(self, lead: FaultRecovery, failure: str) -> bool:
        look = partial(lead.holds, self._exit_statuses, failure, self.services.monitor.action())
        return self.looks.take("try-to-persist", look, lead.began)

    def _take_failures(self, result: RunResult) -> None:
        """Torch has seen a failure before the launcher: its peers are gone, its recorder is not."""
        failures = result.failures
        ends = {rank: self._exit_status(rank, each.exitcode) for rank, each in failures.items()}
        self._exit_statuses = {**self._exit_statuses, **ends}
        # The others have been ended by torch.
        first = min(failures, key=lambda rank: failures[rank].exitcode == -signal.SIGTERM)
        self._failed(how_rank_ended(first, failures[first].pid, failures[first].exitcode))

    def _failed(self, sentence: str) -> None:
        """A worker failed: capture its peers before they are stopped, unless a node is leaving."""
        self._persist_slots(sentence)
        stragglers = self.services.stragglers
        why = stragglers.other_leaves() if stragglers is not None else ""
        if why:
            self.services.log(f"{sentence}; that was expected: {why}")
            return
        self.looks.take("the capture", partial(self.services.monitor.failed, sentence), None)

    def _poll_exits(self, worker_group: WorkerGroup) -> str:
        """Note which workers have ended; a sentence where one of them has just failed."""
        exit_statuses = dict(self._exit_statuses)
        now = time.time()
        sentence = ""
        for worker in worker_group.workers:
            rank = worker.global_rank
            # torch sets the ids once all workers have been started; a signal may come before.
            if rank in exit_statuses or worker.id is None:
                continue
            pid = int(worker.id)
            exit_code = peek_exit(pid)
            if exit_code is None:
                self._seen_alive_unix_s[rank] = now
                continue
            exit_statuses[rank] = self._exit_status(rank, exit_code)
            what = how_rank_ended(rank, pid, exit_code)
            if exit_code:
                sentence = sentence or what
            if self.services.persist is not None:
                self.services.persist.lost(rank, what)
        self._exit_statuses = exit_statuses
        return sentence

    def _exit_status(self, rank: int, exit_code: int) -> ExitStatus:
        error_file = self._worker_files().get(rank, WorkerFiles()).errors or Path()
        seen_alive_unix_s = self._seen_alive_unix_s.get(rank, time.time())
        return exit_status(exit_code, error_file, seen_alive_unix_s)

    def _worker_files(self) -> Mapping[int, WorkerFiles]:
        return worker_files(self._pcontext, self._worker_group.workers)

    def _stop_workers(self, worker_group: WorkerGroup, *more: Any, **named: Any) -> None:  # noqa: ANN401
        self._leave()
        super()._stop_workers(worker_group, *more, **named)

    def _shutdown(self, death_sig: signal.Signals = signal.SIGTERM, *more: Any, **how: Any) -> None:  # noqa: ANN401
        pids = self._pcontext.pids().values() if self._pcontext else ()
        self.looks.take("looking for stopped workers", partial(wake_stopped, pids, death_sig), None)
        self.looks.take("saving before the end", partial(self._save_first, death_sig), None)
        # torch shuts workers down in the handler of this exception where the launcher is to end.
        ended_by = sys.exc_info()[1]
        if isinstance(ended_by, LeavesJob):
            self._persist_slots(f"{ended_by.why}")
        elif isinstance(ended_by, SignalException):
            self._persist_slots(f"the launcher got {signal.Signals(death_sig).name}")
        elif isinstance(ended_by, RendezvousError) and self._started:
            # Before the workers are ended: nobody but this node's launcher can see them now.
            self._failed("the rendezvous store has gone: the node that hosts it has left the job")
        self._leave()
        limit_s = HUNG_SHUTDOWN_S if self._hung else None
        shut_down(super()._shutdown, self._pcontext, death_sig, more, how, limit_s)

    def _save_first(self, why: signal.Signals) -> None:
        """The launcher was asked to end (preemption, Ctrl-C): save the committed step first."""
        if self._recovery is not None:
            self._recovery.save_first(signal.Signals(why).name)
            self._poll_exits(self._worker_group)

    def _leave(self) -> None:
        """Stop watching workers that are about to be stopped."""
        self._hung = self._hung or self.services.monitor.hung
        self.services.monitor.pause()
        if self.services.stragglers is not None:
            self.services.stragglers.pause()
