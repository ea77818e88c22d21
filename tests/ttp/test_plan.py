"""The commit rule on every pattern of small jobs, and on the cases that bit others."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relkit.ttp.plan import Refusal, SavePlan, Survivor, make_plan
from relkit.ttp.replicas import ReplicaMap, replica_map

DP4 = (replica_map("tp0 pp0", range(4)),)


def at(step: int, *ranks: int, ready: bool = False) -> list[Survivor]:
    return [Survivor(rank, step, ready=ready) for rank in ranks]


def test_one_death_saves_the_committed_step_and_its_mirror_gives_the_shard() -> None:
    plan = make_plan(at(7, 0, 1, 3), DP4)
    assert isinstance(plan, SavePlan)
    assert plan.step == 7
    assert plan.groups[0].holders == (0, 1, 0, 1)
    assert plan.groups[0].writer == 0
    assert plan.ranks == (0, 1)
    assert plan.roll_forward == ()


def test_the_one_left_behind_in_the_barrier_rolls_forward() -> None:
    # Rank 3 died in the barrier; its mirror, rank 1, is the one that did not get through.
    plan = make_plan([*at(8, 0, 2), *at(7, 1, ready=True)], DP4)
    assert isinstance(plan, SavePlan)
    assert plan.step == 8
    assert plan.roll_forward == (1,)


def test_without_its_gradients_the_one_left_behind_cannot_help() -> None:
    refusal = make_plan([*at(8, 0, 2), *at(7, 1)], DP4)
    assert isinstance(refusal, Refusal)
    assert refusal.group == "tp0 pp0"
    assert refusal.shard == 1
    assert "rank 1 is at step 7, rank 3 is gone" in refusal.sentence


def test_a_kept_copy_lets_all_go_back() -> None:
    ahead = [Survivor(rank, 8, previous=True) for rank in (0, 2)]
    plan = make_plan([*ahead, *at(7, 1)], DP4)
    assert isinstance(plan, SavePlan)
    assert (plan.step, plan.rollback) == (7, (0,))


def test_both_holders_gone_is_refused_by_name() -> None:
    refusal = make_plan(at(7, 0, 2), DP4)
    assert isinstance(refusal, Refusal)
    assert refusal.sentence == (
        "shard 1 of group tp0 pp0 has no holder at step 7: rank 1 is gone, rank 3 is gone"
    )


def test_step_0_is_refused() -> None:
    refusal = make_plan(at(0, 0, 1, 2, 3), DP4)
    assert isinstance(refusal, Refusal)
    assert "no step has been committed" in refusal.sentence


def test_step_0_that_can_roll_forward_is_saved_as_step_1() -> None:
    plan = make_plan([*at(1, 0, 2), *at(0, 1, ready=True)], DP4)
    assert isinstance(plan, SavePlan)
    assert plan.step == 1


def test_nobody_left_is_refused() -> None:
    assert isinstance(make_plan([], DP4), Refusal)


def test_an_untrusted_rank_is_no_holder() -> None:
    bad = Survivor(3, 7, usable=False, reason="ValueError in the update")
    assert isinstance(make_plan([*at(7, 0, 1, 2), bad], DP4), SavePlan)
    refusal = make_plan([*at(7, 0, 2), bad], DP4)
    assert isinstance(refusal, Refusal)
    assert "cannot be trusted (ValueError in the update)" in refusal.sentence


@pytest.mark.parametrize("size", [2, 3, 4, 5, 6])
def test_exactly_the_survivable_patterns_are_saved(size: int) -> None:
    maps = (replica_map("g", range(size)),)
    for count in range(size):
        for dead in map(set, combinations(range(size), count)):
            living = [rank for rank in range(size) if rank not in dead]
            survivable = all(set(held_by) - dead for held_by in maps[0].holders)
            found = make_plan(at(5, *living), maps)
            assert isinstance(found, SavePlan if survivable else Refusal), dead


@given(st.integers(2, 8), st.integers(1, 3), st.data())
def test_a_plan_only_ever_asks_for_what_can_be_given(
    size: int, groups: int, data: st.DataObject
) -> None:
    maps: list[ReplicaMap] = [
        replica_map(f"g{g}", range(g * size, (g + 1) * size)) for g in range(groups)
    ]
    living = [rank for rank in range(size * groups) if data.draw(st.booleans(), label=f"{rank}")]
    survivors = [
        Survivor(
            rank,
            data.draw(st.integers(3, 4)),
            ready=data.draw(st.booleans()),
            previous=data.draw(st.booleans()),
            usable=data.draw(st.integers(0, 5)) > 0,
        )
        for rank in living
    ]
    found = make_plan(survivors, maps)
    by_rank = {survivor.rank: survivor for survivor in survivors}
    if isinstance(found, SavePlan):
        assert len(found.groups) == groups
        for group, wanted in zip(found.groups, maps, strict=True):
            assert group.writer in group.holders
            for holder, held_by in zip(group.holders, wanted.holders, strict=True):
                assert holder in held_by
                assert by_rank[holder].can_give(found.step)
    else:
        # Nothing newer than what was refused could have been saved either.
        for step in (4, 3):
            able = {s.rank for s in survivors if s.can_give(step)}
            whole = all(set(h) & able for m in maps for h in m.holders)
            newest = max((s.step for s in survivors), default=0)
            reachable = step == newest or any(s.previous for s in survivors)
            assert not (whole and reachable and step <= newest and step >= newest - 1)
