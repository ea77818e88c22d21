"""From counts of launched collectives to who is in one, and for whom the others wait."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from relkit.hang.attribute import attribute
from relkit.hang.model import Category
from relkit.nccl_ras.model import RasAnswer
from relkit.nccl_ras.parse import parse_answer
from relkit.nccl_ras.states import has_stood, places_of, state_of, words_of
from tests.unit.hang.hang_builders import NOW, job, named, view
from tests.unit.nccl_ras.simulated_ras import ras_answer, ras_missing, ras_rank

HERE = frozenset({"127.0.0.1"})
RANKS = 4


def answer_of(counts: Sequence[dict[str, int]], name: str = "0xabc") -> RasAnswer:
    ranks = [ras_rank(rank, 100 + rank) for rank in range(len(counts))]
    for rank, each in zip(ranks, counts, strict=True):
        rank["collective_counts"] |= each
    return parse_answer(ras_answer((name, ranks, [])))


def test_the_rank_that_launched_less_is_the_one_that_others_wait_for() -> None:
    counts = [{"AllReduce": 41, "Broadcast": 2}] * 3 + [{"AllReduce": 40, "Broadcast": 2}]
    answer = answer_of(counts)
    views = []
    for rank in range(RANKS):
        places = places_of(answer, HERE, 100 + rank)
        hook = state_of(places, rank=rank, world_size=RANKS, now_ns=NOW)
        views.append(view(rank, RANKS, stack="lock" if rank == 3 else "all_reduce", hook=hook))
    hook = views[0].hook
    assert hook is not None
    assert [(op.name, op.seq) for op in hook.in_flight] == [("allreduce", 42)]
    verdict = attribute(job(views))
    assert named(verdict) == [(3, Category.BLOCKED)]
    assert any("all_reduce #42" in reason for reason in verdict.culprits[0].reasons)
    assert words_of(places_of(answer, HERE, 100)) == (
        "43 collectives launched; in communicator 0xabc 1 more than its last rank"
    )
    assert words_of(places_of(answer, HERE, 103)) == (
        "42 collectives launched; in communicator 0xabc 1 fewer than its first rank"
    )


def test_where_all_have_launched_the_same_nobody_is_known_to_be_in_anything() -> None:
    answer = answer_of([{"AllReduce": 5}] * RANKS)
    hook = state_of(places_of(answer, HERE, 101), rank=1, world_size=RANKS, now_ns=NOW)
    assert hook is not None
    assert hook.in_flight == ()
    assert [(c.rank, c.size, c.seq) for c in hook.communicators] == [(1, RANKS, 4)]


def test_ahead_by_several_kinds_the_first_of_them_is_not_known() -> None:
    answer = answer_of([{"AllReduce": 5, "AllGather": 3}, {"AllReduce": 4, "AllGather": 2}])
    hook = state_of(places_of(answer, HERE, 100), rank=0, world_size=2, now_ns=NOW)
    assert hook is not None
    assert [(op.name, op.seq) for op in hook.in_flight] == [("collective", 6)]


@pytest.mark.parametrize(("host", "pid"), [("10.0.0.9", 100), ("127.0.0.1", 999)])
def test_processes_of_other_hosts_with_the_same_number_are_others(host: str, pid: int) -> None:
    ranks = [ras_rank(0, pid, host, AllReduce=7)]
    answer = parse_answer(ras_answer(("0xa", ranks, [ras_missing(1, 100)])))
    assert places_of(answer, HERE, 100) == ()


def test_a_rank_that_has_launched_nothing_is_not_judged() -> None:
    places = places_of(answer_of([{}, {}]), HERE, 100)
    assert state_of(places, rank=0, world_size=2, now_ns=NOW) is None


def test_the_state_of_communicators_is_told() -> None:
    ranks = [
        ras_rank(0, 100, status={"abort_flag": True}, AllReduce=1),
        ras_rank(1, 101, status={"async_error": 6}, AllReduce=1),
    ]
    answer = parse_answer(ras_answer(("0xa", ranks, [])))
    assert "communicator 0xa is aborted" in words_of(places_of(answer, HERE, 100))
    assert "communicator 0xa has error 6" in words_of(places_of(answer, HERE, 101))


def test_a_job_that_moves_has_not_stood() -> None:
    one = answer_of([{"AllReduce": 5}, {"AllReduce": 4}])
    assert has_stood(one, answer_of([{"AllReduce": 5}, {"AllReduce": 4}]))
    assert not has_stood(one, answer_of([{"AllReduce": 5}, {"AllReduce": 5}]))
    assert not has_stood(one, answer_of([{"AllReduce": 5}, {"AllReduce": 4}], "0xdef"))
