"""NCCL's RAS beside the hook: asked when a hang is judged, and believed only where it may be."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from relkit.hang.model import HOOK, NCCL_RAS
from relkit.launch.hang.nccl_ras_source import MAX_RANKS, NcclRas
from relkit.launch.hang.observe import Observer
from relkit.launch.hang.state_source import Occasion, SourceReport
from relkit.launch.job.settings import LocalRank
from relkit.nccl_ras.query import NoAnswer, NobodyListens
from tests.unit.nccl_ras.simulated_ras import ras_answer, ras_missing, ras_rank

OTHER = ras_answer(("0xother", [ras_rank(0, 1, AllReduce=1)], []))


@pytest.fixture
def pids() -> Iterator[tuple[int, int]]:
    # They end with their input.
    both = [subprocess.Popen(["cat"], stdin=subprocess.PIPE) for _ in range(2)]
    yield both[0].pid, both[1].pid
    for each in both:
        each.communicate()


def tells(query: Callable[[float], bytes], *pids: int, world_size: int = 4) -> SourceReport:
    source = NcclRas(world_size, query=query, unix_ns=lambda: 10**18, pause=lambda _: None)
    ranks = [LocalRank(rank, pid) for rank, pid in enumerate(pids)]
    # A restart waits for the verdict on a failure.
    for occasion in (Occasion.WATCH, Occasion.FAILURE):
        assert source.look(ranks, occasion) == SourceReport()
    return source.look(ranks, Occasion.HANG)


def body(pids: tuple[int, int], *, ahead: int = 1, host: str = "127.0.0.1") -> bytes:
    ranks = [
        ras_rank(0, pids[0], host, AllReduce=5 + ahead),
        ras_rank(1, pids[1], host, AllReduce=5),
        ras_rank(2, pids[0], "192.0.2.7", AllReduce=6),
    ]
    missing = [ras_missing(3, 77, "192.0.2.7", dead=True)]
    return ras_answer(("0xabc", ranks, missing))


def test_what_it_says_of_local_ranks(pids: tuple[int, int]) -> None:
    asked: list[float] = []

    def query(deadline_s: float) -> bytes:
        asked.append(deadline_s)
        return body(pids)

    told = tells(query, *pids)
    # Twice, so that what merely runs ahead is told from what stands.
    assert len(asked) == 2
    assert told.ranks[0].said.endswith("in communicator 0xabc 1 more than its last rank")
    assert told.ranks[1].said.endswith("in communicator 0xabc 1 fewer than its first rank")
    states = [told.ranks[rank].state for rank in (0, 1)]
    assert [len(state.in_flight) if state else -1 for state in states] == [1, 0]
    assert told.lines == (
        "NCCL's RAS gets no answer from pid 77 on 192.0.2.7 (rank 3 of communicator 0xabc, given "
        "up)",
    )


def test_what_still_moves_proves_nothing(pids: tuple[int, int]) -> None:
    answers = iter([body(pids), body(pids, ahead=2)])
    assert tells(lambda _: next(answers), *pids) == SourceReport()


def test_of_several_jobs_at_one_port_ours_is_found(pids: tuple[int, int]) -> None:
    answers = iter([OTHER, body(pids), OTHER, OTHER, body(pids)])
    assert set(tells(lambda _: next(answers), *pids).ranks) == {0, 1}
    assert tells(lambda _: OTHER, *pids) == SourceReport()


@pytest.mark.parametrize("host", ["192.0.2.9", "localhost", "0.0.0.0", "", "x y"])  # noqa: S104
def test_another_hosts_processes_are_not_ours(pids: tuple[int, int], host: str) -> None:
    assert tells(lambda _: body(pids, host=host), *pids) == SourceReport()


def test_nobody_or_rubbish_is_no_harm(pids: tuple[int, int]) -> None:
    def nobody(_: float) -> bytes:
        raise NobodyListens("nobody")

    def slow(_: float) -> bytes:
        raise NoAnswer("no answer in 3 s")

    assert tells(nobody, *pids) == SourceReport()
    assert tells(slow, *pids) == SourceReport(
        lines=("NCCL's RAS cannot be read (no answer in 3 s)",)
    )
    (line,) = tells(lambda _: b"rubbish", *pids).lines
    assert line.startswith("NCCL's RAS cannot be read (")


def test_all_questions_share_one_deadline(pids: tuple[int, int]) -> None:
    now_s, asked = [100.0], list[float]()

    def slow(deadline_s: float) -> bytes:
        asked.append(deadline_s)
        now_s[0] += 1.5
        return OTHER if len(asked) in (1, 3) else body(pids)

    source = NcclRas(
        4, query=slow, clock=lambda: now_s[0], unix_ns=lambda: 10**18, pause=lambda _: None
    )
    ranks = [LocalRank(rank, pid) for rank, pid in enumerate(pids)]
    assert set(source.look(ranks, Occasion.HANG).ranks) == {0, 1}
    assert asked == [5.0, 3.5, 2.0, 0.5]


def test_a_job_that_is_too_large_is_not_asked_by_each_node(pids: tuple[int, int]) -> None:
    def never(_: float) -> bytes:
        pytest.fail("asked")

    assert tells(never, *pids, world_size=MAX_RANKS + 1) == SourceReport()


def test_a_process_that_others_have_given_up_and_that_runs_is_a_dispute() -> None:
    pid = os.getpid()
    gone = ras_answer(("0xabc", [ras_rank(1, 5, AllReduce=1)], [ras_missing(0, pid, dead=True)]))
    source = NcclRas(2, query=lambda _: gone, pause=lambda _: None)
    observer = Observer(None, sources=[source])
    observer.look_closely(Occasion.HANG)
    (view,) = observer.views([LocalRank(0, pid)])
    assert view.sources.said == {NCCL_RAS: "its RAS does not answer that of the other ranks"}
    assert view.sources.disputes == (
        "the other ranks' NCCL RAS has given the process up, and it runs: the process counts",
    )
    assert view.hook is None


def test_it_is_used_where_nothing_else_knows_the_operations(
    pids: tuple[int, int], tmp_path: Path
) -> None:
    source = NcclRas(4, query=lambda _: body(pids), pause=lambda _: None)
    observer = Observer(tmp_path, sources=[source])
    ranks = [LocalRank(rank, pid) for rank, pid in enumerate(pids)]
    assert [view.hook for view in observer.views(ranks)] == [None, None]
    observer.look_closely(Occasion.HANG)
    views = observer.views(ranks)
    assert [view.sources.state for view in views] == [NCCL_RAS, NCCL_RAS]
    assert views[0].sources.said[HOOK] == "it has seen no collective"
    # Asked once: what was true then is not so for ever.
    assert [view.hook for view in observer.views(ranks)] == [None, None]
