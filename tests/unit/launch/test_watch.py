"""The watch on one node and on two: it detects once, captures all, judges on node 0."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from relkit.findings import Report
from relkit.hang.model import HangVerdict, JobView, RankView
from relkit.hook.model import Communicator, HookState, Op, OpKind
from relkit.launch.hang import codec, follower, incident, leader
from relkit.launch.hang.attempt import WatchedAttempt
from relkit.launch.hang.observe import Observer
from relkit.launch.hang.watch import ALONE_AFTER_S, Watch
from relkit.launch.job.exchange import ExchangeBroken, LedMailbox, MemoryMailbox
from relkit.launch.job.settings import LocalRank, MonitorSettings, OnHang
from relkit.stacks.model import RankDump

SECOND = 10**9
TIMEOUT_S = 10.0


def view(rank: int, now_s: float, *, since_s: float | None = None, finished: int = 5) -> RankView:
    """A rank; `since_s` is when it entered a collective that it is still in."""
    flying = Op("allreduce", OpKind.COLLECTIVE, 5, 0, 4, 1, int((since_s or 0) * SECOND))
    hook = HookState(
        pid=1000 + rank,
        start_ticks=1,
        rank=rank,
        local_rank=rank,
        world_size=4,
        now_ns=int(now_s * SECOND),
        boot_to_unix_ns=0,
        started=finished + 1,
        finished=finished,
        last_finish_ns=int(min(now_s, since_s or now_s) * SECOND),
        in_flight=() if since_s is None else (flying,),
        communicators=(Communicator(0, rank, 4, "0", 4 if since_s is None else 5),),
    )
    return RankView(rank, f"host{rank // 2}", 1000 + rank, True, "S", hook)


class FakeObserver(Observer):
    """Returns what the test says, and notes in `full` whether it was to look closely."""

    def __init__(self, look: Callable[[], tuple[RankView, ...]], full: list[bool]) -> None:
        super().__init__(None)
        self._look, self._full = look, full

    def views(
        self, ranks: object, ends: object = None, *, recent: bool = True
    ) -> tuple[RankView, ...]:
        self._full.append(recent)
        return self._look()

    def file_of(self, rank: int) -> Path | None:
        return None


@dataclass
class Job:
    """Two nodes of two ranks; rank 3 stops moving at `stuck_at_s`."""

    now_s: float = 0.0
    stuck_at_s: float = 5.0
    resumes_at_s: float = 1e9
    full: list[bool] = field(default_factory=list)
    published: list[tuple[JobView, HangVerdict, Report, tuple[RankDump, ...]]] = field(
        default_factory=list
    )
    written: list[tuple[int, ...]] = field(default_factory=list)
    logged: list[str] = field(default_factory=list)

    def look(self, ranks: Sequence[int]) -> tuple[RankView, ...]:
        stuck = self.stuck_at_s <= self.now_s < self.resumes_at_s
        steps = int(self.now_s * 10)
        if not stuck:
            return tuple(view(rank, self.now_s, finished=steps) for rank in ranks)
        return tuple(
            view(
                rank,
                self.now_s,
                since_s=None if rank == 3 else self.stuck_at_s,
                finished=int(self.stuck_at_s * 10),
            )
            for rank in ranks
        )

    def publish(
        self, job: JobView, verdict: HangVerdict, report: Report, dumps: Sequence[RankDump]
    ) -> None:
        self.published.append((job, verdict, report, tuple(dumps)))

    def write_dumps(self, dumps: Sequence[RankDump]) -> None:
        self.written.append(tuple(dump.rank for dump in dumps))

    def watch(
        self, mailbox: LedMailbox, ranks: Sequence[int], on_hang: OnHang = OnHang.ABORT
    ) -> Watch:
        attempt = WatchedAttempt(
            job_id="job",
            world_size=4,
            observer=FakeObserver(lambda: self.look(ranks), self.full),
            mailbox=mailbox,
            ranks=lambda: [LocalRank(rank, 1000 + rank) for rank in ranks],
            exit_statuses=dict,
        )
        return Watch(
            attempt,
            MonitorSettings(TIMEOUT_S, on_hang),
            publish=self.publish,
            write_dumps=self.write_dumps,
            log=self.logged.append,
        )

    def run(self, until_s: float, *watches: Watch) -> None:
        while self.now_s < until_s:
            self.now_s = round(self.now_s + 0.25, 2)
            for each in watches:
                each.tick(self.now_s)


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leader, "SEEN_S", 0.0)


@pytest.fixture(autouse=True)
def fake_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    def capture(
        views: Sequence[RankView],
        _observer: Observer,
        *,
        job_id: str,
        world_size: int,
        deadline_s: float,
    ) -> tuple[RankDump, ...]:
        assert deadline_s > 0
        return tuple(
            RankDump(v.rank, world_size, v.pid, "S (sleeping)", job_id=job_id)
            for v in views
            if v.alive
        )

    monkeypatch.setattr(incident, "capture_local", capture)


def test_one_node_detects_once_and_acts() -> None:
    job = Job()
    only = job.watch(MemoryMailbox(), [0, 1, 2, 3])
    job.run(14.5, only)
    assert job.published == []
    assert not only.state.hung
    # What finished last is looked at for an incident only.
    assert not any(job.full)
    job.run(40, only)
    assert job.full.count(True) == 1
    assert len(job.published) == 1
    seen, verdict, report, dumps = job.published[0]
    assert [v.rank for v in seen.ranks] == [dump.rank for dump in dumps] == [0, 1, 2, 3]
    assert all(v.dump is not None for v in seen.ranks)
    assert verdict.culprits[0].rank == 3
    assert report.facts["culprits"] == [3]
    assert only.state.action is OnHang.ABORT
    assert only.state.hung


def test_a_second_hang_after_progress_is_reported_again() -> None:
    job = Job(resumes_at_s=20.0)
    only = job.watch(MemoryMailbox(), [0, 1, 2, 3], OnHang.REPORT)
    job.run(25, only)
    assert len(job.published) == 1
    assert not only.state.hung
    job.stuck_at_s, job.resumes_at_s = 25.0, 1e9
    job.run(50, only)
    assert len(job.published) == 2


def test_a_report_that_fails_does_not_stop_the_action() -> None:
    job = Job()
    only = job.watch(MemoryMailbox(), [0, 1, 2, 3])

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    only._leader._publish = fail
    with pytest.raises(ZeroDivisionError):
        job.run(40, only)
    assert only.state.action is OnHang.ABORT


def two_nodes(
    job: Job, on_hang: OnHang = OnHang.ABORT, notes: dict[str, bytes] | None = None
) -> tuple[Watch, Watch]:
    notes = {} if notes is None else notes
    return (
        job.watch(MemoryMailbox(0, 2, notes), [0, 1], on_hang),
        job.watch(MemoryMailbox(1, 2, notes), [2, 3], on_hang),
    )


def gather_with(follower: Watch, job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the other node's tick happen while node 0 waits for it."""
    real = incident.gather
    clock = [0.0]

    def pause(seconds: float) -> None:
        clock[0] += seconds
        follower.tick(job.now_s)

    monkeypatch.setattr(
        incident,
        "gather",
        lambda mailbox, number, deadline_s: real(
            mailbox, number, deadline_s, clock=lambda: clock[0], pause=pause
        ),
    )


def test_two_nodes_capture_all_and_node_0_judges(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job()
    first, second = two_nodes(job)
    gather_with(second, job, monkeypatch)
    job.run(30, first, second)
    assert len(job.published) == 1
    seen, verdict, _, dumps = job.published[0]
    assert [dump.rank for dump in dumps] == [0, 1, 2, 3]
    assert {dump.job_id for dump in dumps} == {"job"}
    assert verdict.culprits[0].rank == 3
    assert seen.ranks[3].host == "host1"
    assert job.written == [(2, 3)]
    assert (first.state.action, second.state.action) == (OnHang.ABORT, OnHang.ABORT)
    assert any(line.startswith("node 0 judged: rank 3 (host1") for line in job.logged)


def test_a_node_that_does_not_answer_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job()
    first, second = two_nodes(job)
    clock = [0.0]

    def pause(seconds: float) -> None:
        clock[0] += seconds

    real = incident.gather
    monkeypatch.setattr(
        incident, "gather", lambda m, n, d: real(m, n, d, clock=lambda: clock[0], pause=pause)
    )
    # Node 1 is heard of until the hang, then its host is gone.
    job.run(5, first, second)
    job.run(30, first)
    assert len(job.published) == 1
    seen = job.published[0][0]
    assert [v.rank for v in seen.ranks] == [0, 1, 2, 3]
    assert all("not answer" in v.absent_reason for v in seen.ranks[2:])
    assert any("node 1 did not answer" in line for line in job.logged)
    assert set(job.published[0][2].facts["culprits"]) == {2, 3}


def test_a_failure_on_node_1_is_judged_by_node_0(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(stuck_at_s=1e9)
    first, second = two_nodes(job)
    gather_with(second, job, monkeypatch)
    job.run(3, first, second)
    second.fail("rank 3 (pid 1003) was killed by SIGSEGV")
    job.run(5, second, first)
    assert len(job.published) == 1
    assert job.published[0][0].trigger == "rank 3 (pid 1003) was killed by SIGSEGV"
    assert second.state.captured.is_set()
    job.run(6, second, first)
    assert second.state.judged.is_set()
    told = (first.state.remote_failure, second.state.remote_failure)
    assert told == ("rank 3 (pid 1003) was killed by SIGSEGV", "")
    # A failure is torchrun's to act on.
    assert first.state.action is second.state.action is None


def test_a_failure_is_judged_once_even_if_every_node_reports_it() -> None:
    job = Job(stuck_at_s=1e9)
    only = job.watch(MemoryMailbox(), [0, 1, 2, 3])
    job.run(1, only)
    only.fail("rank 1 exited with code 1")
    job.run(3, only)
    only.fail("rank 2 exited with code 1")
    job.run(5, only)
    assert len(job.published) == 1
    assert only.state.captured.is_set()


def test_a_failing_job_that_hung_keeps_the_hangs_report() -> None:
    job = Job()
    only = job.watch(MemoryMailbox(), [0, 1, 2, 3], OnHang.REPORT)
    job.run(20, only)
    only.fail("rank 0 exited with code 1")
    job.run(21, only)
    assert len(job.published) == 1
    assert "in flight" in job.published[0][0].trigger
    assert only.state.captured.is_set()


class FailingMailbox(MemoryMailbox):
    """A store that fails while `fails` is set."""

    fails = False

    def put(self, key: str, data: bytes) -> None:
        self._check()
        super().put(key, data)

    def get(self, key: str) -> bytes | None:
        self._check()
        return super().get(key)

    def _check(self) -> None:
        if self.fails:
            raise ExchangeBroken("the rendezvous store failed: gone")


def test_without_the_store_a_node_judges_its_own_ranks() -> None:
    job = Job()
    mailbox = FailingMailbox(1, 2)
    mailbox.fails = True
    second = job.watch(mailbox, [2, 3])
    job.run(40, second)
    assert len(job.published) == 1
    assert job.published[0][1].culprits
    complaints = [line for line in job.logged if "judges only its own ranks" in line]
    assert len(complaints) == 1
    absent = [v for v in job.published[0][0].ranks if v.absent_reason]
    assert [v.rank for v in absent] == [0, 1]


class BreakingMailbox(MemoryMailbox):
    """A store that fails when an incident begins."""

    def put(self, key: str, data: bytes) -> None:
        if key.startswith("incident/"):
            raise ExchangeBroken("the rendezvous store failed: gone")
        super().put(key, data)


def test_a_store_that_fails_at_a_hang_loses_neither_report_nor_action() -> None:
    job = Job()
    first = job.watch(BreakingMailbox(0, 2), [0, 1])
    job.run(40, first)
    assert len(job.published) == 1
    assert [dump.rank for dump in job.published[0][3]] == [0, 1]
    assert first.state.action is OnHang.ABORT
    assert any("only this node's ranks are captured" in line for line in job.logged)


def test_a_follower_gives_up_on_a_node_0_that_is_gone() -> None:
    job = Job(stuck_at_s=1e9)
    second = job.watch(MemoryMailbox(1, 2), [2, 3])
    job.run(2, second)
    second.fail("rank 2 (pid 1002) exited with code 1")
    job.run(2 + follower.FAILURE_PATIENCE_S, second)
    assert job.published == []
    job.run(4 + follower.FAILURE_PATIENCE_S, second)
    assert len(job.published) == 1
    assert second.state.judged.is_set()


def test_hostile_notes_are_passed_over() -> None:
    job = Job()
    notes = {"node/1": b"rubbish", "failure/7": b"x"}
    first = job.watch(MemoryMailbox(0, 2, notes), [0, 1])
    job.run(4, first)
    assert job.published == []


def test_a_dead_rank_is_judged_without_a_dump() -> None:
    job = Job(stuck_at_s=1e9)
    only = job.watch(MemoryMailbox(), [0, 1, 2, 3])
    alive = job.look
    job.look = lambda ranks: tuple(  # type: ignore[method-assign]
        replace(v, alive=False, exit_code=-11) if v.rank == 2 else v for v in alive(ranks)
    )
    only.fail("rank 2 (pid 1002) was killed by SIGSEGV")
    job.run(1, only)
    seen, verdict, _, dumps = job.published[0]
    assert [dump.rank for dump in dumps] == [0, 1, 3]
    assert seen.ranks[2].dump is None
    assert verdict.culprits[0].rank == 2


def test_two_hangs_of_two_nodes_are_two_incidents(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(resumes_at_s=25.0)
    notes: dict[str, bytes] = {}
    first, second = two_nodes(job, OnHang.REPORT, notes)
    gather_with(second, job, monkeypatch)
    job.run(30, first, second)
    job.stuck_at_s, job.resumes_at_s = 30.0, 1e9
    job.run(60, first, second)
    assert [[dump.rank for dump in dumps] for _, _, _, dumps in job.published] == [[0, 1, 2, 3]] * 2
    # Node 0 may exit once each verdict has been read.
    assert {f"incident/{number}/seen/1" for number in (0, 1)} <= notes.keys()


@pytest.mark.parametrize("asked_s", [1.5, 1e9])
def test_a_capture_takes_no_longer_than_allowed_whatever_node_0_asks_for(
    monkeypatch: pytest.MonkeyPatch, asked_s: float
) -> None:
    job = Job(stuck_at_s=1e9)
    deadlines = []

    def capture(*_: object, deadline_s: float, **__: object) -> tuple[RankDump, ...]:
        deadlines.append(deadline_s)
        return ()

    monkeypatch.setattr(incident, "capture_local", capture)
    notes = {"incident/0": codec.pack({"job_id": "job", "deadline_s": asked_s})}
    job.run(1, job.watch(MemoryMailbox(1, 2, notes), [2, 3]))
    assert deadlines == [min(asked_s, incident.HANG_CAPTURE_S)]


@pytest.mark.parametrize("node", [0, 1])
def test_a_store_that_fails_for_a_moment_leaves_no_node_alone(node: int) -> None:
    job = Job(stuck_at_s=1e9)
    mailbox = FailingMailbox(node, 2)
    only = job.watch(mailbox, [0, 1])
    for from_s in (2.0, 12.0, 22.0):
        job.run(from_s, only)
        mailbox.fails = True
        job.run(from_s + ALONE_AFTER_S - 1, only)
        mailbox.fails = False
    assert not any("judges only its own ranks" in line for line in job.logged)
    assert only.leads is (node == 0)


def test_once_the_store_is_gone_old_summaries_count_for_nothing() -> None:
    job = Job(stuck_at_s=20.0)
    notes: dict[str, bytes] = {}
    mailbox = FailingMailbox(0, 2, notes)
    first, second = job.watch(mailbox, [0, 1]), job.watch(MemoryMailbox(1, 2, notes), [2, 3])
    job.run(12, first, second)
    mailbox.fails = True
    job.run(60, first)
    (published,) = job.published
    absent = {v.rank: v.absent_reason for v in published[0].ranks if v.absent_reason}
    assert absent == dict.fromkeys((2, 3), "it runs on another node, which this one cannot see")


def test_ranks_without_a_recorder_are_reported_once_there_was_time_for_one() -> None:
    job = Job(stuck_at_s=1e9)
    only = job.watch(MemoryMailbox(), [0, 1, 2, 3])
    seen = job.look

    def look(ranks: Sequence[int]) -> tuple[RankView, ...]:
        views = [replace(v, hook=None) if v.rank in {1, 2} else v for v in seen(ranks)]
        return tuple(replace(v, alive=False) if v.rank == 2 else v for v in views)

    job.look = look  # type: ignore[method-assign]
    job.run(follower.MIN_UNSEEN_S, only)
    assert job.logged == []
    job.run(follower.MIN_UNSEEN_S + 30, only)
    (line,) = job.logged
    assert line.startswith("rank 1: no operation seen yet")


def test_a_known_world_size_beats_what_recorders_say() -> None:
    attempt = WatchedAttempt("job", 16, Observer(None), MemoryMailbox(), lambda: (), dict)
    views = [view(0, 1.0), replace(view(6, 1.0), hook=None)]
    assert attempt.world_size_of(views) == 16
    assert replace(attempt, world_size=0).world_size_of(views) == 7
    assert replace(attempt, world_size=0).world_size_of(views[:1]) == 4


class LedNotes(MemoryMailbox):
    """Notes of launchers, by the one who leads; `lead` changes that for the one that has it."""

    def lead(self, leader: int, *silent: int) -> None:
        self.leader, self.silent = leader, frozenset(silent)

    def put(self, key: str, data: bytes) -> None:
        super().put(f"{self.leader}/{key}", data)

    def get(self, key: str) -> bytes | None:
        return super().get(f"{self.leader}/{key}")


def three_nodes(job: Job) -> tuple[list[LedNotes], list[Watch]]:
    """Node 0 with ranks 0 and 1, and two with one each."""
    notes: dict[str, bytes] = {}
    mailboxes = [LedNotes(node, 3, notes) for node in range(3)]
    ranks = ([0, 1], [2], [3])
    return mailboxes, [job.watch(m, r) for m, r in zip(mailboxes, ranks, strict=True)]


def test_the_next_node_judges_a_hang_once_node_0_is_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = Job()
    mailboxes, (first, second, third) = three_nodes(job)
    gather_with(third, job, monkeypatch)
    job.run(8, first, second, third)
    for each in mailboxes[1:]:
        each.lead(1, 0)
    job.run(30, third, second)
    (published,) = job.published
    assert [dump.rank for dump in published[3]] == [2, 3]
    absent = {v.rank: v.absent_reason for v in published[0].ranks if v.absent_reason}
    assert absent == dict.fromkeys((0, 1), "its node cannot be reached")
    assert 3 in published[2].facts["culprits"]
    assert job.written == [(3,)]
    assert (second.state.action, third.state.action) == (OnHang.ABORT, OnHang.ABORT)
    lost = "node 0 cannot be reached: "
    assert f"{lost}this node leads the watch over the job from here on" in job.logged
    assert f"{lost}node 1 leads the watch over the job from here on" in job.logged
    assert any(line.startswith("node 1 judged: ") for line in job.logged)
    assert not any("did not answer" in line for line in job.logged)


@pytest.mark.parametrize("failing", [1, 2])
def test_a_failure_that_node_0_took_with_it_is_judged_by_the_next_one(
    monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    job = Job(stuck_at_s=1e9)
    mailboxes, watches = three_nodes(job)
    _, second, third = watches
    gather_with(third, job, monkeypatch)
    watches[failing].fail("rank 3 (pid 1003) exited with code 1")
    # Node 0 has asked for a capture, and is not heard again.
    note = codec.pack({"job_id": "job", "deadline_s": 1.5})
    mailboxes[0].put("incident/0", note)
    job.run(2, second, third)
    assert watches[failing].state.failure_handled
    for each in mailboxes[1:]:
        each.lead(1, 0)
    job.run(5, third, second)
    (published,) = job.published
    assert published[0].trigger == "rank 3 (pid 1003) exited with code 1"
    assert watches[failing].state.judged.is_set()


def test_a_leader_that_comes_back_goes_on_with_its_own_incidents(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = Job(resumes_at_s=25.0)
    mailboxes, (_, second, third) = three_nodes(job)
    gather_with(third, job, monkeypatch)
    for each in mailboxes[1:]:
        each.lead(1, 0)
    job.run(25, third, second)
    assert len(job.published) == 1
    for each in mailboxes[1:]:
        each.lead(0)
    note = codec.pack({"job_id": "job", "deadline_s": 1.5})
    mailboxes[0].put("incident/0", note)
    job.run(27, second, third)
    assert mailboxes[0].get("incident/0/node/1") is not None
    assert mailboxes[0].get("incident/0/node/2") is not None


def test_stacks_are_on_disk_before_the_leader_hears_of_them() -> None:
    job = Job(stuck_at_s=1e9)
    notes = {"incident/0": codec.pack({"job_id": "job", "deadline_s": 1.5})}
    written_before: list[bool] = []

    class Noting(MemoryMailbox):
        def put(self, key: str, data: bytes) -> None:
            if key == "incident/0/node/1":
                written_before.append(job.written == [(2, 3)])
            super().put(key, data)

    job.run(1, job.watch(Noting(1, 2, notes), [2, 3]))
    assert written_before == [True]


def test_a_node_that_is_known_to_be_silent_is_not_waited_for() -> None:
    mailbox = LedNotes(1, 2)
    mailbox.lead(1, 0)

    def pause(_: float) -> None:
        pytest.fail("waited")

    assert incident.gather(mailbox, 0, 10.0, clock=lambda: 0.0, pause=pause) == ((), (), (0,))
