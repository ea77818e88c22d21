"""The collector over worker servers: cheap while ranks move, whole where they stand."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from relkit.launch.hang.state_source import Occasion, SourceReport
from relkit.launch.hang.worker_servers import WorkerServers
from relkit.launch.job.settings import LocalRank
from relkit.process import procfs
from relkit.process.identity import own_namespace
from tests.patience import PATIENCE
from tests.unit.flight_recorder.fake_servers import compact, gloo_dump, http, serving

pytestmark = pytest.mark.timeout(60 * PATIENCE)
NAMES = b'["dump_traceback","fr_trace_json","ping"]'


@dataclass
class Rank:
    """One that answers."""

    number: int
    pid: int
    body: bytes = compact(gloo_dump(0, in_flight=False))
    names: bytes = NAMES
    requests: list[str] = field(default_factory=list)

    def answer(self, line: str) -> bytes:
        if line == "GET /handler/":
            return http(self.names)
        return http(self.body)


class Job:
    """Ranks that answer, and a clock."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.now_s = 100.0
        # Processes that live as long as the test: this one, and its parents.
        pids = [os.getpid(), procfs.parent(os.getpid())]
        self.ranks = [Rank(number, pid) for number, pid in enumerate(pids)]
        for rank in self.ranks:
            path = folder / f"{rank.pid}.{own_namespace()}.sock"
            rank.requests = stack.enter_context(serving(path, rank.answer))
        self.servers = WorkerServers(
            folder,
            2,
            every_s=4.0,
            clock=lambda: self.now_s,
            unix_ns=lambda: int(self.now_s * 1e9),
        )

    def look(self, *, closely: bool = False, after_s: float = 4.0) -> SourceReport:
        self.now_s += after_s
        local = [LocalRank(rank.number, rank.pid) for rank in self.ranks]
        return self.servers.look(local, Occasion.HANG if closely else Occasion.WATCH)

    def has(self, *enqueued: int, in_flight: int = -1) -> None:
        for rank, count in zip(self.ranks, enqueued, strict=True):
            rank.body = compact(gloo_dump(count, in_flight=rank.number == in_flight))


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    with ExitStack() as stack:
        yield Job(tmp_path, stack)


def test_a_rank_that_has_called_nothing_is_not_there(job: Job) -> None:
    assert job.look() == SourceReport()


def test_ranks_that_move_are_known_by_their_counts(job: Job) -> None:
    finished = []
    for count in (5, 6):
        job.has(count, count, in_flight=0)
        state = job.look().ranks[0].state
        assert state is not None
        assert (state.in_flight, state.communicators) == ((), ())
        assert state.pid == os.getpid()
        finished.append(state.finished)
    assert finished[1] > finished[0]


def test_ranks_that_stand_are_read(job: Job) -> None:
    job.has(8, 7, in_flight=0)
    job.look()
    tells = job.look()
    states = [tells.ranks[rank].state for rank in (0, 1)]
    assert states[0] is not None
    assert states[1] is not None
    assert [op.seq for op in states[0].in_flight] == [8]
    assert [c.seq for c in states[1].communicators] == [7]
    assert (
        tells.ranks[0].said == "8 operations called, all_reduce #8 of the default group in flight"
    )
    assert tells.ranks[1].said == "7 operations called, none in flight"
    # They go on: what was in flight is not any more.
    job.has(9, 9)
    moving = job.look().ranks[0].state
    assert moving is not None
    assert moving.in_flight == ()


def test_they_are_asked_seldom_while_they_move_and_often_where_they_stand(job: Job) -> None:
    job.has(5, 5)
    job.look()
    asked = len(job.ranks[0].requests)
    for _ in range(3):
        job.look(after_s=1.0)
    assert len(job.ranks[0].requests) == asked
    job.look(after_s=1.0)
    assert len(job.ranks[0].requests) == asked + 1
    # That look has shown that nothing moves.
    job.look(after_s=1.0)
    job.look(after_s=1.0)
    assert len(job.ranks[0].requests) == asked + 3


def test_a_close_look_reads_all_at_once(job: Job) -> None:
    job.has(8, 7, in_flight=0)
    tells = job.look(closely=True)
    state = tells.ranks[0].state
    assert state is not None
    assert [op.seq for op in state.in_flight] == [8]


def test_one_that_does_not_answer_a_close_look_is_not_judged_by_what_it_said_before(
    job: Job, tmp_path: Path
) -> None:
    job.has(5, 5)
    job.look()
    job.ranks[1].body = b"{}"
    tells = job.look(closely=True)
    assert tells.ranks[1].state is None
    assert tells.ranks[1].said == "5 operations called, when it last answered"
    assert tells.lines == (
        "rank 1: PyTorch's flight recorder cannot be read (a dump without pg_status)",
    )
    # It is said once.
    assert job.look(closely=True).lines == ()


def test_a_rank_that_does_not_answer_any_more_is_not_held_to_be_in_an_operation(job: Job) -> None:
    job.has(8, 7, in_flight=0)
    for _ in range(2):
        told = job.look().ranks[0]
    assert told.state is not None
    assert [op.seq for op in told.state.in_flight] == [8]
    job.ranks[0].body = b"{}"
    states = [job.look().ranks[0].state for _ in range(4)]
    # A look or two may fail on a busy machine.
    assert [state is None for state in states] == [False, False, True, True]
    assert job.look(closely=True).ranks[0].state is None
    # It is heard of again.
    job.has(9, 9)
    state = job.look().ranks[0].state
    assert state is not None
    assert state.in_flight == ()


def test_a_rank_whose_socket_was_removed_is_not_known_any_more(job: Job, tmp_path: Path) -> None:
    job.has(5, 5)
    job.look()
    for rank in job.ranks:
        (tmp_path / f"{rank.pid}.{own_namespace()}.sock").unlink()
    tells = [job.look() for _ in range(3)]
    assert [each.ranks[1].state is None for each in tells] == [False, False, True]
    assert tells[-1].lines == (
        "ranks 0-1: PyTorch's flight recorder cannot be read (its socket is gone)",
    )


def test_a_rank_that_ends_has_no_server_and_nothing_in_flight(tmp_path: Path) -> None:
    now_s = 100.0
    servers = WorkerServers(tmp_path, 1, clock=lambda: now_s)
    path = tmp_path / f"{os.getpid()}.{own_namespace()}.sock"
    dump = compact(gloo_dump(4, in_flight=True))
    states = []
    with serving(path, lambda line: http(NAMES if line.startswith("GET") else dump)):
        for _ in range(2):
            states.append(servers.look([LocalRank(0, os.getpid())]).ranks[0].state)
            now_s += 10.0
    # Nobody listens at it any more, as after the end of torch's server.
    for _ in range(3):
        states.append(servers.look([LocalRank(0, os.getpid())]).ranks[0].state)
        now_s += 10.0
    # A rank that is stuck in its end has to be seen: it still counts as one that finishes nothing.
    assert [-1 if s is None else len(s.in_flight) for s in states] == [0, 1, 1, 1, 0]
    assert states[-1] is not None
    assert states[1] is not None
    assert states[-1].finished == states[1].finished


def test_nccls_own_recorder_is_asked_before_the_general_one(job: Job) -> None:
    job.ranks[0].names = b'["fr_trace_json","dump_nccl_trace_json"]'
    job.has(3, 3)
    job.look()
    assert job.ranks[0].requests[-1] == "POST /handler/dump_nccl_trace_json"
    assert job.ranks[1].requests[-1] == "POST /handler/fr_trace_json"


def test_a_torch_without_a_recorder_is_said(job: Job) -> None:
    job.ranks[0].names = b'["ping"]'
    job.has(3, 3)
    # Not at once: a rank that ends has no server for a moment, either.
    assert [job.look().lines for _ in range(4)] == [
        (),
        (),
        ("rank 0: PyTorch's flight recorder cannot be read (its torch has none to ask for)",),
        (),
    ]
    assert set(job.look().ranks) == {1}


def test_a_rank_behind_a_wrapper_is_found(tmp_path: Path) -> None:
    parent = procfs.parent(os.getpid())
    body = compact(gloo_dump(4, in_flight=False))
    with serving(
        tmp_path / f"{os.getpid()}.{own_namespace()}.sock",
        lambda line: http(NAMES if line.startswith("GET") else body),
    ):
        tells = WorkerServers(tmp_path, 1).look([LocalRank(0, parent)])
    state = tells.ranks[0].state
    assert state is not None
    assert state.pid == os.getpid()


def test_a_folder_without_sockets_costs_nothing_and_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "launcher.lock").touch()
    assert WorkerServers(tmp_path, 1).look([LocalRank(0, os.getpid())]) == SourceReport()
    assert WorkerServers(tmp_path / "none", 1).look([LocalRank(0, 1)]) == SourceReport()
