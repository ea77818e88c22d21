"""Who is late, missing or waiting, where a naive reading would accuse a victim."""

from __future__ import annotations

import signal
from dataclasses import replace

import pytest

from relkit.hang.attribute import attribute
from relkit.hang.finding_builder import host_category
from relkit.hang.groups import groups_of
from relkit.hang.model import Category, CpuUse
from relkit.hang.rank_table import rank_row
from relkit.hang.report import hang_report
from relkit.hang.stackclass import classify
from relkit.hook.model import Communicator, OpKind
from relkit.ranks import RankSet
from tests.unit.hang.hang_builders import (
    BUCKETS,
    job,
    named,
    op,
    others_wait,
    state,
    steps,
    trained,
    two_groups,
    view,
    waiting_around,
    waiting_for_buckets,
)

WORLD = 4
BAD = 2


def test_a_victim_of_a_dead_peer_is_not_late() -> None:
    views = waiting_around(view(BAD, WORLD, stack="lock", hook=trained(BAD, WORLD)))
    # It was lost outside of its collectives, so nothing but its error says that it is a victim.
    views[1] = view(
        1, WORLD, hook=trained(1, WORLD), alive=False, exit_code=1,
        error="RuntimeError: [pair.cc:598] Connection reset by peer [10.0.0.1]:2022",
    )  # fmt: skip
    assert named(attribute(job(views))) == [(BAD, Category.BLOCKED)]


def test_a_rank_without_a_recorder_inside_communication_is_not_missing() -> None:
    verdict = attribute(others_wait(view(0, WORLD, stack="ddp")))
    assert verdict.culprits == ()
    assert verdict.inconclusive.startswith("all ranks have called all_reduce #12")


def test_ranks_that_other_nodes_watch_are_not_accused() -> None:
    """`relkit run`: a node knows its own ranks only."""
    views = waiting_around(view(BAD, WORLD, stack="lock", hook=trained(BAD, WORLD)))
    here = replace(job(views[:BAD]), world_size=WORLD, sees_all=False)
    verdict = attribute(here)
    assert verdict.culprits == ()
    assert verdict.inconclusive == (
        "no rank of this node stands out, and it sees none of ranks 2-3, which other nodes watch"
    )
    assert ("2-3", "are not seen here") in [(v.ranks, v.sentence) for v in verdict.victims]
    there = replace(job(views[BAD:]), world_size=WORLD, sees_all=False)
    assert named(attribute(there)) == [(BAD, Category.BLOCKED)]
    # The launcher of all nodes has asked for them.
    asked = attribute(replace(here, sees_all=True))
    assert {category for _, category in named(asked)} == {Category.ABSENT}


def test_an_operation_that_failed_earlier_is_no_wait() -> None:
    done = [replace(o, failed=o.communicator == 1 and o.seq == 5) for o in steps(6)]
    done.append(op(seq=12, size=BUCKETS[0], age_s=11.5))
    hook = state(BAD, WORLD, done, (), two_groups(BAD, WORLD))
    verdict = attribute(others_wait(view(BAD, WORLD, stack="lock", hook=hook)))
    assert named(verdict) == [(BAD, Category.BLOCKED)]


def test_a_recorder_without_an_operation_outweighs_a_stack_that_looks_like_one() -> None:
    verdict = attribute(others_wait(view(BAD, WORLD, stack="ddp", hook=trained(BAD, WORLD))))
    assert named(verdict) == [(BAD, Category.BLOCKED)]


def test_ranks_that_have_ended_are_not_waited_for_while_one_runs() -> None:
    recv = op("recv", -1, group=-1, kind=OpKind.P2P, age_s=11, in_flight=True)
    views = [view(r, WORLD, stack="recv", hook=state(r, WORLD, steps(1), [recv])) for r in range(4)]
    views[0] = view(0, WORLD, hook=state(0, WORLD, steps(1)), alive=False, exit_code=0)
    views[1] = view(1, WORLD, stack="lock", hook=state(1, WORLD, steps(1)))
    assert named(attribute(job(views))) == [(1, Category.BLOCKED)]


def test_a_rank_killed_by_another_ranks_wrong_call_is_not_accused() -> None:
    views = []
    for rank in range(WORLD):
        name = "allgather" if rank == BAD else "allreduce"
        flying = [op(name, seq=6, group=1, size=4, age_s=11, in_flight=True)]
        views.append(view(rank, WORLD, stack="all_reduce", hook=trained(rank, WORLD, 6, flying)))
    views[0] = replace(views[0], alive=False, exit_code=-signal.SIGABRT, dump=None)
    assert named(attribute(job(views))) == [(BAD, Category.MISMATCH)]


@pytest.mark.parametrize(
    ("stack", "share", "category"),
    [
        ("spin", 0.2, Category.SPINNING),
        ("spin", 0.02, Category.BLOCKED),
        # Other threads of the process use the CPU; the main thread's stack shows a wait.
        ("lock", 0.9, Category.BLOCKED),
    ],
)
def test_a_busy_loop_on_a_crowded_host_is_still_one(
    stack: str, share: float, category: Category
) -> None:
    busy = view(BAD, WORLD, stack=stack, hook=trained(BAD, WORLD), cpu=CpuUse(share, 1.0))
    assert host_category(busy, classify(busy.dump)) is category
    assert named(attribute(others_wait(busy))) == [(BAD, category)]


def test_ranks_that_have_not_started_an_operation_are_behind() -> None:
    views = waiting_around(view(BAD, WORLD, stack="lock", hook=trained(BAD, WORLD)))
    group = groups_of(job(views))[0]
    assert group.behind(13) == group.behind(12) == RankSet.of([BAD])
    assert group.behind(11) == RankSet()
    assert group.behind(14) == RankSet.world(WORLD)


def test_two_ranks_that_wait_for_one_another_with_equal_right_are_both_spared() -> None:
    groups = [[Communicator(i, rank, 2, name) for i, name in enumerate("ab")] for rank in range(2)]
    views = [
        view(rank, 2, stack="all_reduce", hook=state(
            rank, 2, (), [op(seq=0, group=rank, age_s=11, in_flight=True)], groups[rank]))
        for rank in range(2)
    ]  # fmt: skip
    verdict = attribute(job(views))
    assert verdict.culprits == ()
    assert "wait for one another in different operations" in verdict.inconclusive


def test_a_victim_is_shown_in_the_wait_that_the_culprit_causes() -> None:
    # The first of two waits is one in which nobody is missing.
    bucket = op(seq=12, size=BUCKETS[0], age_s=11.5, in_flight=True)
    loss = op(seq=6, group=1, size=4, age_s=11.0, in_flight=True)
    views = [
        view(r, WORLD, stack="all_reduce", hook=trained(r, WORLD, 6, [bucket, loss]))
        for r in range(WORLD)
    ]
    done = [op(seq=12, size=BUCKETS[0], age_s=11.5)]
    views[BAD] = view(BAD, WORLD, stack="lock", hook=trained(BAD, WORLD, 6, (), done))
    verdict = attribute(job(views))
    assert named(verdict) == [(BAD, Category.BLOCKED)]
    assert [(v.ranks, v.sentence) for v in verdict.victims] == [
        ("0-1,3", 'wait for it in all_reduce #6 of group "1" (ranks 0-3)')
    ]


def test_a_dead_ranks_stack_is_not_missed() -> None:
    dead = view(BAD, WORLD, hook=trained(BAD, WORLD), alive=False, exit_code=-11)
    whole = others_wait(dead)
    assert [f.id for f in hang_report(whole, attribute(whole)).findings] == ["RK-HANG-002"]


def test_the_longest_wait_is_one_of_the_victims() -> None:
    flying = [replace(o, start_ns=o.start_ns - 50 * 10**9) for o in waiting_for_buckets()]
    stopped = view(BAD, WORLD, stack="ddp", hook=trained(BAD, WORLD, 6, flying), process_state="T")
    whole = others_wait(stopped)
    evidence = hang_report(whole, attribute(whole)).findings[0].evidence
    longest = next(e for e in evidence if e.name == "longest operation in flight")
    assert longest.value == pytest.approx(11.0)


def test_the_row_of_a_rank_shows_its_communication_before_its_kernels() -> None:
    kernel = op("launch", -1, group=-1, kind=OpKind.KERNEL, age_s=90, in_flight=True)
    rank = view(0, WORLD, hook=trained(0, WORLD, 6, [kernel, *waiting_for_buckets()]))
    row = rank_row(rank)
    assert row["in_flight"] == "all_reduce #12 of the default group"
    assert row["in_flight_s"] == pytest.approx(11.0)
