"""The watch on one node and on two: it detects once, captures all, judges on node 0."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from relkit.hang.model import HangVerdict, RankView
from relkit.launch.hang import codec, follower, incident
from relkit.launch.hang.attempt import WatchedRanks
from relkit.launch.hang.observe import Observer
from relkit.launch.hang.watch import ALONE_AFTER_S, MIN_UNSEEN_S, Watch
from relkit.launch.job.attempt import Attempt
from relkit.launch.job.exchange import ExchangeBroken, MemoryMailbox
from relkit.launch.job.on_hang import OnHang
from relkit.stacks.model import RankDump
from tests.unit.launch.hang.watched_job import Job, fake_capture, gather_with, no_waiting, view

__all__ = ["fake_capture", "no_waiting"]


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


@pytest.mark.parametrize(("nodes", "looks"), [(2, [0, 1, 2, 3, 4]), (8192, [0, 0, 2, 2, 4])])
def test_in_a_very_large_job_the_leader_looks_when_summaries_are_due(
    nodes: int, looks: list[int]
) -> None:
    job, looked_s = Job(), []
    leads = job.watch(MemoryMailbox(0, nodes), [0, 1])
    for now_s in range(5):
        leads.tick(float(now_s))
        looked_s.append(leads._leader._detector.look.time_s)
    assert looked_s == looks


def test_a_job_whose_scripts_have_ended_is_given_time_to_exit_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(HangVerdict, "is_over", True)
    job = Job()
    only = job.watch(MemoryMailbox(), [0, 1, 2, 3])
    while not job.published:
        job.run(job.now_s + 0.25, only)
    assert only.state.action is None
    assert not only.state.hung
    assert sum("all scripts have ended: --on-hang abort" in line for line in job.logged) == 1
    job.run(60, only)
    assert only.state.action is OnHang.ABORT


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


@pytest.mark.parametrize("nodes", [1, 2])
def test_who_ends_during_the_capture_is_judged_by_how_it_ended(
    nodes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(stuck_at_s=1e9)
    watches: tuple[Watch, ...] = (job.watch(MemoryMailbox(), [0, 1, 2, 3]),)
    if nodes == 2:
        watches = two_nodes(job)
        gather_with(watches[1], job, monkeypatch)
    captured = WatchedRanks.capture

    def capture(
        attempt: WatchedRanks,
        views: Sequence[RankView],
        deadline_s: float,
        *,
        world_size: int,
        job_id: str,
    ) -> tuple[RankDump, ...]:
        # Rank 3 was alive when the others were seen to fail.
        dumps = captured(attempt, views, deadline_s, world_size=world_size, job_id=job_id)
        if 3 in [view.rank for view in views]:
            job.ended[3] = 4
        return dumps

    monkeypatch.setattr(WatchedRanks, "capture", capture)
    job.run(3, *watches)
    job.ended[0] = -6
    watches[0].fail("rank 0 (pid 1000) was killed by SIGABRT")
    job.run(8, *watches)
    ((seen, *_),) = job.published
    assert [(each.alive, each.exit_code) for each in seen.ranks] == [
        (False, -6), (True, None), (True, None), (False, 4)
    ]  # fmt: skip


def two_nodes(
    job: Job, on_hang: OnHang = OnHang.ABORT, notes: dict[str, bytes] | None = None
) -> tuple[Watch, Watch]:
    notes = {} if notes is None else notes
    return (
        job.watch(MemoryMailbox(0, 2, notes), [0, 1], on_hang),
        job.watch(MemoryMailbox(1, 2, notes), [2, 3], on_hang),
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


def test_in_a_very_large_job_a_node_that_is_alone_looks_at_each_tick() -> None:
    job, looked_s = Job(), []
    mailbox = FailingMailbox(0, 8192)
    mailbox.fails = True
    first = job.watch(mailbox, [0, 1])
    for now_s in range(9):
        first.tick(float(now_s))
        looked_s.append(first._leader._detector.look.time_s)
    assert looked_s == [0, 0, 0, 0, 0, 0, 0, 1, 2]


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
    job.run(MIN_UNSEEN_S, only)
    assert job.logged == []
    job.run(MIN_UNSEEN_S + 30, only)
    (line,) = job.logged
    assert line.startswith("rank 1: no operation seen yet")


def test_a_known_world_size_beats_what_recorders_say() -> None:
    attempt = WatchedRanks(Attempt("job", 16), Observer(None), MemoryMailbox(), lambda: (), dict)
    views = [view(0, 1.0), replace(view(6, 1.0), hook=None)]
    assert attempt.world_size_of(views) == 16
    assert replace(attempt, attempt=Attempt("job", 0)).world_size_of(views) == 7
    assert replace(attempt, attempt=Attempt("job", 0)).world_size_of(views[:1]) == 4
