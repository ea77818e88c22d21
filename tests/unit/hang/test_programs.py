"""Programs that go wrong in one call: whatever the layout, the rank that did it is named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from relkit.hang.attribute import attribute
from relkit.hang.model import Category, RankView
from relkit.hook.model import Communicator, Op, OpKind
from tests.unit.hang.hang_builders import NOW, SECOND, job, named, state, view
from tests.unit.hang.test_properties import World, worlds

Call = tuple[str, int, int]
STEPS = 6


@dataclass(frozen=True)
class Slip:
    """What one rank does otherwise.

    Args:
        rank: who; at: before which of its calls.
        kind: "skip" leaves it out, "op" and "size" make another one.
    """

    rank: int
    at: int
    kind: str


def program(world: World) -> list[Call]:
    """All calls of a rank: the calls of a step differ in size, so that their order shows."""
    step = [("allreduce", 1, 64 + i) for i in range(world.tensor_calls)]
    step += [("allreduce", 2, 4096 + i) for i in range(world.data_calls)]
    return (step + ([("allreduce", 0, 4)] if world.loss else [])) * STEPS


def program_of(world: World, rank: int, slip: Slip) -> list[Call]:
    calls = program(world)
    if rank == slip.rank:
        _, group, size = calls[slip.at]
        calls[slip.at : slip.at + 1] = {
            "skip": [],
            "op": [("allgather", group, size)],
            "size": [("allreduce", group, 2 * size + 1)],
        }[slip.kind]
    return calls


def run(world: World, slip: Slip) -> list[RankView]:
    """Run until nobody can go on."""
    return run_calls(
        [program_of(world, rank, slip) for rank in range(world.size)],
        [[tuple(world.members(rank, g)) for g in range(3)] for rank in range(world.size)],
        [world.groups(rank) for rank in range(world.size)],
    )


def run_calls(
    calls: Sequence[Sequence[Call]],
    members: Sequence[Sequence[tuple[int, ...]]],
    groups: Sequence[Sequence[Communicator]],
) -> list[RankView]:
    """Run until nobody can go on. A collective ends when all members have made the same call.

    Args:
        calls, members, groups: of each rank; the latter two by the number of the group.
    """
    size = len(calls)
    made: dict[tuple[tuple[int, ...], int, int], dict[int, tuple[str, int]]] = {}
    counts = [[0] * len(own) for own in members]
    done: list[list[Op]] = [[] for _ in range(size)]
    flying: list[Op | None] = [None] * size
    tick, moved = NOW - 100 * SECOND, True
    while moved:
        moved = False
        for rank in range(size):
            tick += 1000
            op = flying[rank]
            if op is None and len(done[rank]) < len(calls[rank]):
                name, group, payload = calls[rank][len(done[rank])]
                seq = counts[rank][group]
                counts[rank][group] += 1
                flying[rank] = Op(name, OpKind.COLLECTIVE, seq, group, payload, 7, tick)
                made.setdefault((members[rank][group], group, seq), {})[rank] = (name, payload)
                moved = True
            elif op is not None:
                there = made[members[rank][op.communicator], op.communicator, op.seq]
                everybody = len(there) == len(members[rank][op.communicator])
                if everybody and len(set(there.values())) == 1:
                    done[rank].append(replace(op, end_ns=tick))
                    flying[rank], moved = None, True
    found = []
    for rank in range(size):
        op = flying[rank]
        hook = state(rank, size, done[rank], [op] if op else [], groups[rank])
        one = view(rank, size, stack="all_reduce" if op else "", hook=hook)
        found.append(one if op else replace(one, alive=False, exit_code=0))
    return found


@st.composite
def slips(draw: st.DrawFn) -> tuple[World, Slip]:
    world = draw(worlds)
    calls = program(world)
    step = len(calls) // STEPS
    slip = Slip(
        rank=draw(st.integers(0, world.size - 1)),
        at=draw(st.integers(2 * step, 4 * step - 1)),
        kind=draw(st.sampled_from(["skip", "op", "size"])),
    )
    # Nobody waits for a rank that is alone in the group of the call.
    assume(len(world.members(slip.rank, calls[slip.at][1])) > 1)
    return world, slip


@settings(deadline=None)
@given(slips())
def test_the_rank_that_made_another_call_is_named(case: tuple[World, Slip]) -> None:
    world, slip = case
    views = run(world, slip)
    assert any(v.hook and v.hook.in_flight for v in views)
    if slip.kind != "skip":
        expected = Category.MISMATCH
    else:
        # Each of its later calls may be taken for the one before: then it has ended too early.
        expected = Category.SKIPPED if views[slip.rank].alive else Category.LEFT
    assert named(attribute(job(views))) == [(slip.rank, expected)]


def test_ranks_that_wait_when_most_have_finished_made_one_call_too_many() -> None:
    done = [Op("allreduce", OpKind.COLLECTIVE, 0, 0, 4, 7, NOW - SECOND, NOW - SECOND // 2)]
    more = Op("allreduce", OpKind.COLLECTIVE, 1, 0, 4, 7, NOW - 20 * SECOND)
    views = [view(r, 4, hook=state(r, 4, done), alive=False, exit_code=0) for r in range(3)]
    views.append(view(3, 4, stack="all_reduce", hook=state(3, 4, done, [more])))
    verdict = attribute(job(views))
    assert [(c.rank, c.category) for c in verdict.culprits] == [(3, Category.MISMATCH)]
    assert verdict.culprits[0].sentence == (
        "called all_reduce #1 of the default group, which ranks 0-2 finished without"
    )


def test_groups_are_told_apart_by_the_order_in_which_they_were_made() -> None:
    """2x2x2 ranks have 13 groups: as words, "10" comes before "2"."""
    kinds = (
        [tuple(range(8))],
        [(0, 1), (2, 3), (4, 5), (6, 7)],
        [(0, 2), (1, 3), (4, 6), (5, 7)],
        [(0, 4), (1, 5), (2, 6), (3, 7)],
    )
    names = {ranks: str(n) for n, ranks in enumerate(r for kind in kinds for r in kind)}
    members = [[next(g for g in kind if rank in g) for kind in kinds] for rank in range(8)]
    groups = [
        [Communicator(i, g.index(rank), len(g), names[g]) for i, g in enumerate(own)]
        for rank, own in enumerate(members)
    ]
    layers: list[Call] = [("allreduce", 1, 64), ("allreduce", 3, 64), ("allreduce", 1, 64)]
    end: list[Call] = [("allreduce", 1, 8), ("allreduce", 2, 512), ("allreduce", 0, 4)]
    for odd in range(8):
        calls = [(layers + end) * STEPS for _ in range(8)]
        calls[odd] = [*(layers + end) * 4, *layers, end[2], *end[:2]]
        verdict = attribute(job(run_calls(calls, members, groups)))
        assert [(c.rank, c.category) for c in verdict.culprits] == [(odd, Category.SKIPPED)]
