"""A job whose work is done, and whose ranks are slow to exit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from relkit.hang.attribute import attribute
from relkit.hang.model import Category, RankView
from relkit.hook.model import Op
from relkit.ranks import RankSet
from tests.unit.hang.hang_builders import job, named, op, trained, view

WORLD = 4


def finished(rank: int) -> RankView:
    hook = trained(rank, WORLD, 5)
    return view(rank, WORLD, hook=hook, alive=False, exit_code=0)


def exiting(rank: int, *flying: Op) -> RankView:
    hook = replace(trained(rank, WORLD, 5), in_flight=flying)
    return view(rank, WORLD, stack="exit", hook=hook)


def test_a_job_whose_ranks_have_all_come_to_their_end_is_slow_to_exit() -> None:
    verdict = attribute(job([*map(finished, range(WORLD - 1)), exiting(WORLD - 1)]))
    assert named(verdict) == [(WORLD - 1, Category.SLOW_EXIT)]
    assert verdict.is_over
    assert verdict.culprits[0].sentence.startswith("exiting, waiting for an event for ")
    assert not verdict.victims
    everybody = attribute(job(list(map(exiting, range(WORLD)))))
    assert named(everybody) == [(rank, Category.SLOW_EXIT) for rank in range(WORLD)]


NOT_OVER = {
    "a rank trains": view(0, WORLD, stack="spin", hook=trained(0, WORLD, 5)),
    "a rank is stopped": replace(exiting(0), process_state="T"),
    "a rank waits in an operation": exiting(0, op("allreduce", 9, age_s=12.0, in_flight=True)),
    "a rank failed": replace(finished(0), exit_code=1),
    "a rank is absent": view(0, WORLD, alive=False, absent_reason="its node sent nothing"),
}


@pytest.mark.parametrize("case", NOT_OVER)
def test_a_job_is_not_over_while(case: str) -> None:
    verdict = attribute(job([NOT_OVER[case], *map(exiting, range(1, WORLD))]))
    assert not verdict.is_over
    assert any(rank == 0 for rank, _category in named(verdict))


def test_a_rank_that_another_node_watches_does_not_keep_the_job_from_being_over() -> None:
    elsewhere = view(0, WORLD, alive=False, absent_reason="it runs on another node")
    alone = replace(job([elsewhere, *map(exiting, range(1, WORLD))]), sees_all=False)
    verdict = attribute(alone)
    assert {category for _rank, category in named(verdict)} == {Category.SLOW_EXIT}
    assert RankSet.of(rank for rank, _category in named(verdict)) == RankSet.of(range(1, WORLD))
