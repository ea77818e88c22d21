"""Groups matched across ranks, and the first call in which members of one differ."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from relkit.hang.attribute import attribute
from relkit.hang.groups import groups_of
from relkit.hang.model import Category, RankView
from relkit.hang.sequence import disagreements
from relkit.hang.words import exit_words, group_title, of_ranks, size, torch_name
from relkit.hook.model import Communicator, Op
from relkit.ranks import RankSet
from tests.unit.hang.hang_builders import job, op, state, view

Calls = Sequence[tuple[str, int]]

A, B, LOSS = ("allreduce", 4096), ("allreduce", 2048), ("allreduce", 4)
STEP = (A, B, LOSS)


def calls(made: Calls, *, first: int = 0, last_stuck: bool = True) -> tuple[list[Op], list[Op]]:
    ops = [
        op(name, first + i, size=payload, age_s=50 - i, in_flight=last_stuck and i == len(made) - 1)
        for i, (name, payload) in enumerate(made)
    ]
    return ([*ops[:-1]], [ops[-1]]) if last_stuck else (ops, [])


def ranks(*made: Calls, first: int = 0) -> list[RankView]:
    world = len(made)
    found = []
    for rank, own in enumerate(made):
        done, flying = calls(own, first=first)
        found.append(view(rank, world, stack="ddp", hook=state(rank, world, done, flying)))
    return found


def test_equal_calls_are_no_disagreement() -> None:
    same = [*STEP * 3, A]
    assert disagreements(groups_of(job(ranks(same, same, same)))) == ()


def test_the_minority_is_odd() -> None:
    right, wrong = [*STEP * 3, A], [*STEP * 3, ("broadcast", 4096)]
    found = disagreements(groups_of(job(ranks(right, wrong, right))))[0]
    assert (found.seq, found.odd, found.rest) == (9, RankSet.of([1]), RankSet.of([0, 2]))
    assert not found.skipped
    assert found.sentence() == (
        "called broadcast as #9 of the default group, where the others call all_reduce"
    )


def test_a_left_out_call_shows_as_a_shift() -> None:
    right, wrong = [*STEP * 3, A, B, LOSS], [*STEP * 3, A, B, A]
    found = disagreements(groups_of(job(ranks(right, right, wrong))))[0]
    assert found.skipped
    assert found.odd == RankSet.of([2])


@pytest.mark.parametrize("batch", [1, 2, 3, 4])
def test_a_left_out_call_among_equal_ones_of_a_step(batch: int) -> None:
    # Two ranks, so that no majority decides: their past does. Which of equal calls was left out
    # shows only where the run of them ends, one call early.
    step = [A, A, A, A, LOSS]
    short = [*step[: batch - 1], *step[batch:]]
    right, wrong = [*step * 4, *step[:4]], [*step * 4, *short]
    found = disagreements(groups_of(job(ranks(right, wrong))))[0]
    assert (found.seq, found.odd, found.skipped) == (23, RankSet.of([1]), True)


def test_a_left_out_call_before_what_does_not_follow_in_every_step() -> None:
    evaluation = ("allgather", 24)
    past = [A, LOSS, evaluation, A, LOSS, A]
    found = disagreements(groups_of(job(ranks([*past, LOSS], [*past, LOSS], [*past, evaluation]))))
    assert (found[0].odd, found[0].skipped) == (RankSet.of([2]), True)


def test_a_left_out_call_shows_while_the_others_are_already_in_the_next() -> None:
    # No past to learn from, but one rank has #3 in flight beside #2, in another worker thread.
    views = ranks([A, B, LOSS], [A, B, LOSS], [A, B, A])
    done = calls([A, B], last_stuck=False)[0]
    flying = [op(seq=2, size=LOSS[1], in_flight=True), op(seq=3, size=A[1], in_flight=True)]
    views[0] = view(0, 3, stack="ddp", hook=state(0, 3, done, flying))
    found = disagreements(groups_of(job(views)))[0]
    assert (found.seq, found.odd) == (2, RankSet.of([2]))
    assert found.skipped


def test_with_two_ranks_the_past_tells_who_is_right() -> None:
    right, wrong = [*STEP * 3, A, B, LOSS], [*STEP * 3, A, B, ("allgather", 4)]
    found = disagreements(groups_of(job(ranks(wrong, right))))[0]
    assert found.odd == RankSet.of([0])
    assert found.certain


def test_two_ranks_with_no_past_are_not_judged() -> None:
    views = ranks([("allgather", 4)], [LOSS])
    found = disagreements(groups_of(job(views)))[0]
    assert not found.certain
    assert not found.odd
    verdict = attribute(job(views))
    assert verdict.culprits == ()
    assert "neither side is in the majority" in verdict.inconclusive


def test_old_differences_that_did_no_harm_are_no_proof() -> None:
    right = [*STEP * 3, A, B, LOSS]
    other = [("allreduce", 8), *right[1:]]
    assert disagreements(groups_of(job(ranks(right, other, right)))) == ()


@pytest.mark.parametrize("name", ["gather", "scatter", "allgatherv", "alltoallv"])
def test_uneven_collectives_may_differ_in_size(name: str) -> None:
    views = ranks([A, (name, 16)], [A, (name, 32)], [A, (name, 0)])
    assert disagreements(groups_of(job(views))) == ()


def test_a_size_that_is_not_recorded_matches_any() -> None:
    views = ranks([A, ("allreduce", 0)], [A, B], [A, B])
    assert disagreements(groups_of(job(views))) == ()


def test_a_ring_that_has_lost_the_start_is_compared_where_it_overlaps() -> None:
    views = ranks([*STEP * 3, A], [*STEP * 3, A], [*STEP * 3, A])
    done, flying = calls([LOSS, ("allgather", 4)], first=8)
    views[1] = view(1, 3, stack="ddp", hook=state(1, 3, done, flying))
    assert disagreements(groups_of(job(views)))[0].odd == RankSet.of([1])


def test_a_group_made_again_under_its_old_name_starts_afresh() -> None:
    old = [op(seq=i, group=1, size=64, age_s=90 - i) for i in range(9)]
    new = [op(seq=0, group=2, size=8, age_s=5, in_flight=True)]
    pair = [Communicator(1, 0, 3, "tp"), Communicator(2, 0, 3, "tp")]
    only = [Communicator(1, 0, 3, "tp")]
    flying = [op(seq=0, group=1, size=8, age_s=5, in_flight=True)]
    views = [
        view(0, 3, hook=state(0, 3, old, new, pair)),
        view(1, 3, hook=state(1, 3, (), flying, [Communicator(1, 1, 3, "tp")])),
        view(2, 3, hook=state(2, 3, (), flying, [Communicator(1, 2, 3, only[0].name)])),
    ]
    group = groups_of(job(views))[0]
    assert {m.newest for m in group.members.values()} == {0}
    assert disagreements([group]) == ()


def test_unnamed_groups_are_matched_by_index_and_size() -> None:
    views = [view(r, 4, hook=state(r, 4, (), (), [Communicator(3, r % 2, 2)])) for r in range(4)]
    assert [g.ranks.fold() for g in groups_of(job(views))] == ["0-1", "2-3"]


def test_a_group_of_one_is_none() -> None:
    assert groups_of(job([view(0, 1, hook=state(0, 1))])) == ()


def test_a_rank_that_called_what_the_others_call_next_left_one_out() -> None:
    right, wrong = [*STEP * 3, A, B], [*STEP * 3, A, LOSS]
    verdict = attribute(job(ranks(right, wrong, right)))
    assert [(c.rank, c.category) for c in verdict.culprits] == [(1, Category.SKIPPED)]


def test_words() -> None:
    assert torch_name("allreduce") == "all_reduce"
    assert torch_name("barrier") == "barrier"
    assert of_ranks(RankSet.of([2])) == "rank 2"
    assert of_ranks(RankSet.of(range(0, 60, 2))) == "30 ranks (0,2,4,...)"
    assert [size(n) for n in (0, 4, 16384, 1536 * 1024, 3 << 30)] == [
        "0 B", "4 B", "16 KiB", "1.5 MiB", "3 GiB",
    ]  # fmt: skip
    assert exit_words(-11) == "ended by signal 11 (SIGSEGV)"
    assert exit_words(-63) == "ended by signal 63"
    assert exit_words(7) == "exited with code 7"


def test_titles_of_groups() -> None:
    assert group_title(Communicator(0, 0, 4, "0"), 4) == "the default group"
    assert group_title(Communicator(0, 0, 4), 4) == "the default group"
    assert group_title(Communicator(1, 0, 2), 4) == "a group of 2"
    long = Communicator(1, 0, 2, "c0ffee" * 8)
    assert group_title(long, 4, RankSet.of([1, 3])) == 'group "c0ffeec0ffeec..." (ranks 1,3)'
