"""Of which ranks a leader asks for all that is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from relkit.hang.columns.ranks import FlightColumns
from relkit.hang.detection.view_columns import columns_of
from relkit.hang.suspicion.whom_to_ask import ALL_UP_TO, SOME, STAND_OUT, whom_to_ask
from relkit.ranks import RankSet
from tests.unit.hang.suspicion.loops import Loop


def test_in_a_small_job_all_are_asked_for() -> None:
    ranks = columns_of(Loop(world=8).views())
    assert whom_to_ask(ranks, ranks.flights) == RankSet.world(8)
    assert whom_to_ask(ranks, ranks.flights, 2) == RankSet.of(range(2, 8))


def test_in_a_large_job_those_that_stand_out_and_some_that_wait() -> None:
    loop = Loop(world=2 * ALL_UP_TO)
    loop.wait_in(range(900))
    loop.wait_in(range(900, 1000), name="broadcast")
    loop.now_s = 5.0
    for number in (3, 700):
        loop.ranks[number].letter = "T"
    views = list(loop.views())
    views[9] = replace(views[9], alive=False, exit_code=1)
    ranks = columns_of(views)
    asked = whom_to_ask(ranks, ranks.flights)
    assert len(asked) == SOME
    assert {3, 9, 700} <= set(asked)
    # Ranks 1000 to 1023 are in nothing, and one of them holds all others up.
    assert set(range(1000, 1024)) <= set(asked)
    waiting = set(asked) - {3, 9, 700} - set(range(1000, 1024))
    assert any(rank < 900 for rank in waiting)
    assert any(900 <= rank < 1000 for rank in waiting)


def test_ranks_of_the_leader_itself_are_not_asked_for() -> None:
    ranks = columns_of(Loop(world=2 * ALL_UP_TO).views())
    assert min(whom_to_ask(ranks, ranks.flights, 8)) == 8


def test_however_many_stand_out_some_that_wait_are_asked_for() -> None:
    loop = Loop(world=2 * ALL_UP_TO)
    loop.wait_in(range(900, 1024))
    ranks = columns_of(loop.views())
    asked = list(whom_to_ask(ranks, ranks.flights))
    assert len(asked) == SOME
    assert sum(rank >= 900 for rank in asked) == SOME - STAND_OUT


def test_a_rank_that_waits_in_two_operations_is_asked_for_once() -> None:
    ranks = columns_of(Loop(world=ALL_UP_TO + 1).views())
    all_of_them = np.arange(ALL_UP_TO + 1)
    twice = np.concatenate((all_of_them, all_of_them))
    nothing = np.zeros(len(twice))
    flights = FlightColumns(
        twice, nothing.astype(np.uint64), (twice % 7).astype(np.uint64), nothing
    )
    assert len(whom_to_ask(ranks, flights)) == SOME


def test_of_more_kinds_than_are_asked_for_those_that_began_to_wait_first() -> None:
    ranks = columns_of(Loop(world=ALL_UP_TO + 1).views())
    all_of_them = np.arange(ALL_UP_TO + 1)
    kinds = (all_of_them * 7919 % 1009).astype(np.uint64)
    age_s = np.where(all_of_them % 5 == 0, 60.0, 1.0)
    flights = FlightColumns(all_of_them, all_of_them.astype(np.uint64), kinds, age_s)
    assert all(rank % 5 == 0 for rank in whom_to_ask(ranks, flights))
