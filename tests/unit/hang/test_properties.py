"""What must hold for every job: order and names of ranks carry no meaning, the late rank is it."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from relkit.hang.attribute import attribute
from relkit.hang.model import Category, JobView, RankView
from relkit.hook.model import Communicator, HookState, Op, OpKind
from tests.unit.hang.hang_builders import NOW, SECOND, dump, job, named, state, view


@dataclass(frozen=True)
class World:
    """A job of tp x dp ranks whose every step is: some tp collectives, then some dp ones."""

    tensor: int
    data: int
    tensor_calls: int
    data_calls: int
    loss: bool

    @property
    def size(self) -> int:
        return self.tensor * self.data

    def groups(self, rank: int) -> list[Communicator]:
        tp, dp = rank % self.tensor, rank // self.tensor
        return [
            Communicator(0, rank, self.size, "0"),
            Communicator(1, tp, self.tensor, f"tp-{dp}"),
            Communicator(2, dp, self.data, f"dp-{tp}"),
        ]

    def members(self, rank: int, group: int) -> list[int]:
        mine = self.groups(rank)[group].name
        return [r for r in range(self.size) if self.groups(r)[group].name == mine]

    def program(self, steps: int) -> list[tuple[int, int]]:
        """(group, payload) of every call, the same on every rank."""
        one = [(1, 64)] * self.tensor_calls + [(2, 4096)] * self.data_calls
        return (one + ([(0, 4)] if self.loss else [])) * steps


worlds = st.builds(
    World,
    tensor=st.integers(1, 4),
    data=st.integers(2, 4),
    tensor_calls=st.integers(1, 3),
    data_calls=st.integers(1, 3),
    loss=st.booleans(),
)


def simulate(world: World, late: dict[int, int], steps: int = 3) -> list[HookState]:
    """Run the program until nobody can go on; rank r blocks on the host before its call late[r]."""
    program = world.program(steps)
    size, members = world.size, [[world.members(r, g) for g in range(3)] for r in range(world.size)]
    position = [0] * size
    arrived: list[list[int]] = [[0, 0, 0] for _ in range(size)]
    inside = [False] * size
    done: list[list[Op]] = [[] for _ in range(size)]
    flying: list[Op | None] = [None] * size
    tick = NOW - 100 * SECOND
    moved = True
    while moved:
        moved = False
        for rank in range(size):
            tick += 1000
            if position[rank] == len(program):
                continue
            group, payload = program[position[rank]]
            if not inside[rank]:
                if late.get(rank) == position[rank]:
                    continue
                seq = arrived[rank][group]
                arrived[rank][group] += 1
                inside[rank] = moved = True
                flying[rank] = Op("allreduce", OpKind.COLLECTIVE, seq, group, payload, 7, tick)
            else:
                op = flying[rank]
                assert op is not None
                if all(arrived[m][group] > op.seq for m in members[rank][group]):
                    done[rank].append(replace(op, end_ns=tick))
                    flying[rank], inside[rank], moved = None, False, True
                    position[rank] += 1
    found = []
    for rank in range(size):
        op = flying[rank]
        found.append(state(rank, size, done[rank], [op] if op else [], world.groups(rank)))
    return found


def as_job(states: list[HookState], late: dict[int, int]) -> JobView:
    return job(
        [
            view(s.rank, len(states), stack="lock" if s.rank in late else "all_reduce", hook=s)
            for s in states
        ]
    )


@st.composite
def stuck_worlds(draw: st.DrawFn) -> tuple[World, int, int]:
    world = draw(worlds)
    # Not in the first step, so that every group is known to every rank by then.
    calls = len(world.program(3))
    return world, draw(st.integers(0, world.size - 1)), draw(st.integers(calls // 3, calls - 1))


@settings(deadline=None)
@given(stuck_worlds())
def test_the_one_late_rank_is_the_verdict(case: tuple[World, int, int]) -> None:
    world, rank, call = case
    late = {rank: call}
    states = simulate(world, late)
    # A rank that is late to a group of its own keeps nobody waiting.
    assume(any(s.in_flight for s in states))
    assert named(attribute(as_job(states, late))) == [(rank, Category.BLOCKED)]


@settings(deadline=None)
@given(stuck_worlds(), st.randoms(use_true_random=False))
def test_the_order_in_which_ranks_are_listed_means_nothing(
    case: tuple[World, int, int], shuffler: random.Random
) -> None:
    world, rank, call = case
    whole = as_job(simulate(world, {rank: call}), {rank: call})
    ranks = list(whole.ranks)
    shuffler.shuffle(ranks)
    assert attribute(replace(whole, ranks=tuple(ranks))) == attribute(whole)


def renamed(whole: JobView, to: list[int]) -> JobView:
    """The same job whose rank r is called to[r]; places in groups go along."""
    views: list[RankView] = []
    for old in whole.ranks:
        hook = old.hook
        assert hook is not None
        rank = to[old.rank]
        groups = tuple(replace(c, rank=rank) if c.name == "0" else c for c in hook.communicators)
        stack = "lock" if hook.in_flight == () else "all_reduce"
        views.append(
            replace(
                old, rank=rank, dump=dump(rank, whole.world_size, stack), pid=1000 + rank,
                hook=replace(hook, rank=rank, communicators=groups),
            )
        )  # fmt: skip
    return replace(whole, ranks=tuple(sorted(views, key=lambda v: v.rank)))


@settings(deadline=None)
@given(stuck_worlds(), st.randoms(use_true_random=False))
def test_the_names_of_ranks_mean_nothing(
    case: tuple[World, int, int], shuffler: random.Random
) -> None:
    world, rank, call = case
    whole = as_job(simulate(world, {rank: call}), {rank: call})
    to = list(range(world.size))
    shuffler.shuffle(to)
    before, after = attribute(whole), attribute(renamed(whole, to))
    assert [to[r] for r, _ in named(before)] == [r for r, _ in named(after)]


@settings(deadline=None)
@given(worlds, st.data())
def test_of_two_late_ranks_only_late_ranks_are_named(world: World, data: st.DataObject) -> None:
    calls = len(world.program(3))
    pick = st.integers(calls // 3, calls - 1)
    ranks = data.draw(st.lists(st.integers(0, world.size - 1), min_size=2, max_size=2, unique=True))
    late = {rank: data.draw(pick) for rank in ranks}
    states = simulate(world, late)
    # A rank that waits before it comes to its own fault is a victim by then.
    blocked = {s.rank for s in states if not s.in_flight and s.rank in late}
    verdict = attribute(as_job(states, dict.fromkeys(blocked, 0)))
    assert {c.rank for c in verdict.culprits} <= blocked
    if any(s.in_flight for s in states):
        assert verdict.culprits


@settings(deadline=None)
@given(st.integers(3, 8), st.integers(0, 7), st.integers(3, 11), st.booleans())
def test_the_odd_call_is_found_wherever_it_is(
    size: int, odd: int, seq: int, other_op: bool
) -> None:
    odd %= size
    views = []
    for rank in range(size):
        done = [
            Op("allreduce", OpKind.COLLECTIVE, i, 0, 64, 7, NOW - 90 * SECOND + i, NOW - SECOND)
            for i in range(seq)
        ]
        name, payload = ("broadcast", 64) if other_op else ("allreduce", 128)
        if rank != odd:
            name, payload = "allreduce", 64
        last = Op(name, OpKind.COLLECTIVE, seq, 0, payload, 7, NOW - 20 * SECOND)
        views.append(view(rank, size, stack="all_reduce", hook=state(rank, size, done, [last])))
    assert named(attribute(job(views))) == [(odd, Category.MISMATCH)]
