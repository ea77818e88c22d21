"""The pipeline's order: every pass once, no ring of waiting ranks, and no bubble beyond theory."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relkit.errors import UsageProblem
from relkit.trainer.core.schedule import (
    SENDS_UNDER_WAY,
    Action,
    P2PEdge,
    forward_schedule,
    schedule,
    source,
    target,
    warm_up,
)

FORWARD_COST = 1
BACKWARD_COST = 2


@dataclass(frozen=True)
class Pipeline:
    """Sizes of a step that a schedule exists for."""

    size: int
    micro_batches: int
    virtual: int


@st.composite
def pipelines(draw: st.DrawFn) -> Pipeline:
    size = draw(st.integers(1, 6))
    virtual = draw(st.integers(1, 4)) if size > 1 else 1
    count = draw(st.integers(1, 12))
    return Pipeline(size, count * size if virtual > 1 else count, virtual)


def actions_of(pipeline: Pipeline, *, forward_only: bool = False) -> list[tuple[Action, ...]]:
    order = forward_schedule if forward_only else schedule
    return [
        order(rank, pipeline.size, pipeline.micro_batches, pipeline.virtual)
        for rank in range(pipeline.size)
    ]


@dataclass
class Machine:
    """Ranks that obey their schedules: passes take time, sends are left behind, receives block.

    A send is on a first-in first-out edge per (sender, receiver, kind, wrap), and finishes when it
    is received. A rank with more than `limit` unfinished sends waits for its oldest one.
    """

    pipeline: Pipeline
    limit: int
    edges: dict[tuple[int, int, str, bool], deque[tuple[Action, int]]] = field(default_factory=dict)
    unfinished: dict[int, deque[tuple[tuple[int, int, str, bool], int]]] = field(
        default_factory=dict
    )
    sent: Counter[tuple[int, int, str, bool]] = field(default_factory=Counter)
    taken_at: dict[tuple[int, int, str, bool], list[int]] = field(default_factory=dict)

    def run(self, *, forward_only: bool = False) -> int:
        """Time at which the last rank is done; fails the test where ranks wait for each other."""
        size, virtual = self.pipeline.size, self.pipeline.virtual
        orders = actions_of(self.pipeline, forward_only=forward_only)
        clocks, done = [0] * size, [0] * size
        moved = True
        while moved:
            moved = False
            for rank, order in enumerate(orders):
                while done[rank] < len(order):
                    action = order[done[rank]]
                    sends_done = self._wait_for_old_sends(rank)
                    if sends_done is None:
                        break
                    came_from = source(action, rank, size, virtual)
                    if came_from is not None:
                        arrival = self._take(rank, came_from, action, clocks[rank])
                        if arrival is None:
                            break
                        clocks[rank] = arrival
                    clocks[rank] = max(clocks[rank], sends_done)
                    clocks[rank] += FORWARD_COST if action.kind == "F" else BACKWARD_COST
                    goes_to = target(action, rank, size, virtual)
                    if goes_to is not None:
                        self._put(rank, goes_to, action, clocks[rank])
                    done[rank] += 1
                    moved = True
        assert done == [len(order) for order in orders], "the ranks wait for each other"
        assert not any(self.edges.values()), "something was sent that nobody received"
        return max(clocks)

    def _wait_for_old_sends(self, rank: int) -> int | None:
        pending = self.unfinished.setdefault(rank, deque())
        until = 0
        while len(pending) > self.limit:
            edge, number = pending[0]
            times = self.taken_at.get(edge, [])
            if len(times) <= number:
                return None
            until = max(until, times[number])
            pending.popleft()
        return until

    def _put(self, rank: int, hop: P2PEdge, action: Action, now: int) -> None:
        edge = (rank, hop.peer, hop.kind, hop.wrap)
        self.edges.setdefault(edge, deque()).append((action, now))
        self.unfinished.setdefault(rank, deque()).append((edge, self.sent[edge]))
        self.sent[edge] += 1

    def _take(self, rank: int, hop: P2PEdge, wanted: Action, now: int) -> int | None:
        edge = (hop.peer, rank, hop.kind, hop.wrap)
        waiting = self.edges.get(edge)
        if not waiting:
            return None
        action, arrival = waiting.popleft()
        self.taken_at.setdefault(edge, []).append(max(arrival, now))
        step = 1 if hop.kind == "F" else -1
        assert action.micro_batch == wanted.micro_batch, "the edge's order is not the schedule's"
        assert action.chunk == wanted.chunk - step * hop.wrap
        return max(arrival, now)


@given(pipelines())
def test_every_pass_is_done_once_and_backward_after_forward(pipeline: Pipeline) -> None:
    every = {
        (micro_batch, chunk)
        for micro_batch in range(pipeline.micro_batches)
        for chunk in range(pipeline.virtual)
    }
    for order in actions_of(pipeline):
        assert len(order) == 2 * len(every)
        seen: set[tuple[int, int]] = set()
        finished: set[tuple[int, int]] = set()
        for action in order:
            key = (action.micro_batch, action.chunk)
            if action.kind == "F":
                assert key not in seen
                seen.add(key)
            else:
                assert key in seen
                assert key not in finished
                finished.add(key)
        assert seen == finished == every


@given(pipelines(), st.booleans())
def test_no_ring_of_waiting_ranks(pipeline: Pipeline, forward_only: bool) -> None:
    Machine(pipeline, SENDS_UNDER_WAY).run(forward_only=forward_only)


@given(pipelines())
def test_a_rank_holds_no_more_micro_batches_than_its_warm_up_and_one(pipeline: Pipeline) -> None:
    for rank, order in enumerate(actions_of(pipeline)):
        held = most = 0
        for action in order:
            held += 1 if action.kind == "F" else -1
            most = max(most, held)
        total = pipeline.micro_batches * pipeline.virtual
        ahead = warm_up(rank, pipeline.size, pipeline.micro_batches, pipeline.virtual)
        assert most == min(ahead + 1, total)


@given(pipelines())
def test_the_bubble_is_the_one_of_theory(pipeline: Pipeline) -> None:
    work = (FORWARD_COST + BACKWARD_COST) * pipeline.micro_batches * pipeline.virtual
    bubble = (FORWARD_COST + BACKWARD_COST) * (pipeline.size - 1)
    assert Machine(pipeline, limit=10**9).run() == work + bubble


@given(pipelines())
def test_the_limit_on_sends_costs_no_time(pipeline: Pipeline) -> None:
    assert Machine(pipeline, SENDS_UNDER_WAY).run() == Machine(pipeline, limit=10**9).run()


@dataclass(frozen=True)
class Transfer:
    """One end of a tensor's way on a GPU: it starts once `after` passes of its rank are done."""

    is_send: bool
    peer: int
    after: int


class Streams:
    """What a rank of NCCL has queued: passes in one stream, transfers in one for each edge.

    A transfer blocks its stream until both ends have come to it; a pass waits for its receive, and
    for sends that are too old. That one stream serves both neighbours of a rank is the worst case:
    so it is where a group's communicator is made at once.
    """

    def __init__(self, order: tuple[Action, ...], rank: int, pipeline: Pipeline) -> None:
        self.passes: list[list[tuple[tuple[str, bool], int]]] = []
        self.edges: dict[tuple[str, bool], list[Transfer]] = {}
        self.done_passes = 0
        self.done: dict[tuple[str, bool], int] = {}
        sizes = (rank, pipeline.size, pipeline.virtual)
        sends: deque[tuple[tuple[str, bool], int]] = deque()
        posted: dict[int, tuple[tuple[str, bool], int]] = {}
        waits: list[tuple[tuple[str, bool], int]] = []

        def queue(hop: P2PEdge, *, is_send: bool, after: int) -> tuple[tuple[str, bool], int]:
            edge = (hop.kind, hop.wrap)
            stream = self.edges.setdefault(edge, [])
            stream.append(Transfer(is_send, hop.peer, after))
            self.done.setdefault(edge, 0)
            return edge, len(stream)

        def post(index: int) -> None:
            hop = source(order[index], *sizes) if index < len(order) else None
            if hop is not None:
                posted[index] = queue(hop, is_send=False, after=max(0, index - 1))

        post(0)
        for index, action in enumerate(order):
            post(index + 1)
            self.passes.append([*waits, *([posted[index]] if index in posted else [])])
            waits = []
            hop = target(action, *sizes)
            if hop is not None:
                sends.append(queue(hop, is_send=True, after=index + 1))
                if len(sends) > SENDS_UNDER_WAY:
                    waits.append(sends.popleft())

    def compute(self) -> bool:
        """Do the next pass, if all that it waits for has come to pass."""
        if self.done_passes == len(self.passes):
            return False
        if any(self.done[edge] < count for edge, count in self.passes[self.done_passes]):
            return False
        self.done_passes += 1
        return True

    def head(self, edge: tuple[str, bool]) -> Transfer | None:
        """The transfer that blocks a edge's stream now, if its tensor is there."""
        stream, done = self.edges.get(edge, []), self.done.get(edge, 0)
        if done == len(stream) or stream[done].after > self.done_passes:
            return None
        return stream[done]


@given(pipelines(), st.booleans())
def test_no_ring_of_waiting_streams_on_gpus(pipeline: Pipeline, forward_only: bool) -> None:
    orders = actions_of(pipeline, forward_only=forward_only)
    ranks = [Streams(order, rank, pipeline) for rank, order in enumerate(orders)]
    moved = True
    while moved:
        moved = False
        for rank, streams in enumerate(ranks):
            while streams.compute():
                moved = True
            for edge in streams.edges:
                mine = streams.head(edge)
                theirs = ranks[mine.peer].head(edge) if mine is not None else None
                if mine is None or theirs is None or not mine.is_send:
                    continue
                if theirs.peer == rank and not theirs.is_send:
                    streams.done[edge] += 1
                    ranks[mine.peer].done[edge] += 1
                    moved = True
    for streams in ranks:
        assert streams.done_passes == len(streams.passes), "the streams wait for each other"


def test_order_of_two_ranks_as_written_down() -> None:
    def text(rank: int) -> str:
        return " ".join(f"{a.kind}{a.micro_batch}" for a in schedule(rank, 2, 4))

    assert text(0) == "F0 F1 B0 F2 B1 F3 B2 B3"
    assert text(1) == "F0 B0 F1 B1 F2 B2 F3 B3"


def test_order_with_two_virtual_stages_as_written_down() -> None:
    def text(rank: int) -> str:
        return " ".join(f"{a.kind}{a.micro_batch}.{a.chunk}" for a in schedule(rank, 2, 4, 2))

    assert text(0) == (
        "F0.0 F1.0 F0.1 F1.1 F2.0 B0.1 F3.0 B1.1 F2.1 B0.0 F3.1 B1.0 B2.1 B3.1 B2.0 B3.0"
    )
    assert text(1) == (
        "F0.0 F1.0 F0.1 B0.1 F1.1 B1.1 F2.0 B0.0 F3.0 B1.0 F2.1 B2.1 F3.1 B3.1 B2.0 B3.0"
    )


def test_one_rank_is_plain_gradient_accumulation() -> None:
    order = schedule(0, 1, 3)
    assert [(a.kind, a.micro_batch) for a in order] == [
        ("F", 0), ("B", 0), ("F", 1), ("B", 1), ("F", 2), ("B", 2),
    ]  # fmt: skip
    assert all(source(a, 0, 1) is None and target(a, 0, 1) is None for a in order)


def test_numbers_without_an_order_are_refused_by_name() -> None:
    with pytest.raises(UsageProblem, match="pipeline_model_parallel_size 2"):
        schedule(0, 2, 3, 2)
    with pytest.raises(UsageProblem, match="at least 1"):
        schedule(0, 2, 0)
