"""Large jobs on paper for hangs/hang_large.py: tensor-, pipeline- and data-parallel, hung.

One healthy and one faulty pipeline are simulated call by call, 1F1B; the other pipelines are like
the healthy one. What is made is what each node would send to the launcher that leads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from relkit.hang.model import CpuUse, RankView
from relkit.hang.words import torch_name
from relkit.hook.model import Communicator, HookState, Op, OpKind, TransferCount
from relkit.launch.hang import codec
from relkit.stacks.model import Frame, RankDump, Role, ThreadStack

TENSOR, STAGES, BATCHES, STEPS = 8, 16, 16, 3
# The rank at fault in its pipeline, and the exchange of its last step at which it goes wrong.
BAD_STAGE, BAD_TENSOR, BAD_BATCH = 6, 3, 4
RANKS_A_NODE = 8
_SECOND, _TICK_NS, _HUNG_S = 10**9, 200_000, 600
_BYTES = {
    "allreduce": 1 << 20, "allgather": 1 << 21, "reducescatter": 1 << 21,
    "send": 1 << 22, "recv": 1 << 22,
}  # fmt: skip
_SITE = "/opt/venv/lib/python3.11/site-packages"
# The world, its tensor-, pipeline- and data-parallel group.
_GROUPS = 4

# Which pipeline (0 healthy, 1 faulty), stage, and place in the tensor-parallel group.
Place = tuple[int, int, int]
# Name, number of the group (0-3), peer in it.
Call = tuple[str, int, int]
# Called together, and waited for together.
Unit = tuple[Call, ...]


@dataclass(slots=True)
class Rank:
    """What one rank has called, is in, and will call."""

    units: Iterator[Unit]
    done: list[Op] = field(default_factory=list)
    flying: list[Op] = field(default_factory=list)
    called: dict[tuple[int, int | str], int] = field(default_factory=dict)
    ended: dict[tuple[int, int | str], int] = field(default_factory=dict)


class Program:
    """The calls of one rank: 1F1B as Megatron has it, and the fault in its last step."""

    def __init__(self, place: Place, fault: str) -> None:
        _, self.stage, _ = place
        self.fault = fault if place == (1, BAD_STAGE, BAD_TENSOR) else ""

    def units(self) -> Iterator[Unit]:
        """All steps; a rank that is stuck on its host makes no more calls."""
        for step in range(STEPS):
            fault = self.fault if step == STEPS - 1 else ""
            warm = STAGES - 1 - self.stage
            for _ in range(warm):
                yield self._transfer("recv", -1)
                yield (("allgather", 1, -1),)
                yield self._transfer("send", 1)
            yield self._transfer("recv", -1)
            for batch in range(BATCHES - warm):
                now = fault if batch == BAD_BATCH else ""
                if now == "stuck on its host":
                    return
                if now != "skips a collective":
                    yield (("allgather", 1, -1),)
                sent = () if now == "leaves a send out" else self._transfer("send", 1)
                yield (*sent, *self._transfer("recv", 1))
                yield (("reducescatter", 1, -1),)
                more = self._transfer("recv", -1) if batch + 1 < BATCHES - warm else ()
                yield (*self._transfer("send", -1), *more)
            for _ in range(warm):
                yield self._transfer("recv", 1)
                yield (("reducescatter", 1, -1),)
                yield self._transfer("send", -1)
            yield (("allreduce", 3, -1),)
            yield (("allreduce", 0, -1),)

    def _transfer(self, name: str, way: int) -> Unit:
        peer = self.stage + way
        return ((name, 2, peer),) if 0 <= peer < STAGES else ()


class Simulation:
    """Two pipelines, until nobody can go on."""

    def __init__(self, fault: str) -> None:
        places = [(p, s, t) for p in (0, 1) for s in range(STAGES) for t in range(TENSOR)]
        self.ranks = {place: Rank(Program(place, fault).units()) for place in places}
        self.arrived: dict[tuple[object, ...], int] = {}
        self.now_ns = _SECOND

    def run(self) -> None:
        """Sends end when the peer has called the other half, collectives when all have."""
        turns = deque(self.ranks)
        while turns:
            place = turns.popleft()
            rank = self.ranks[place]
            while self._has_ended(place, rank):
                unit = next(rank.units, None)
                if unit is None:
                    break
                for call in unit:
                    turns.extend(self._begin(place, rank, call))

    def _begin(self, place: Place, rank: Rank, call: Call) -> list[Place]:
        """Who may go on because of it."""
        name, shelf, peer = call
        counted = _counted(name, shelf, peer)
        seq = rank.called.get(counted, 0)
        rank.called[counted] = seq + 1
        self.now_ns += _TICK_NS
        kind = OpKind.COLLECTIVE if peer < 0 else OpKind.P2P
        rank.flying.append(Op(name, kind, seq, shelf, _BYTES[name], 7, self.now_ns, peer=peer))
        if peer >= 0:
            return [(place[0], peer, place[2])]
        key = (*_group(place, shelf), seq)
        self.arrived[key] = self.arrived.get(key, 0) + 1
        full = self.arrived[key] == _simulated(shelf)
        return [p for p in self.ranks if _group(p, shelf) == key[:-1]] if full else []

    def _has_ended(self, place: Place, rank: Rank) -> bool:
        """All that it has called."""
        for op in list(rank.flying):
            if self._is_over(place, op):
                self.now_ns += _TICK_NS
                counted = _counted(op.name, op.communicator, op.peer)
                rank.ended[counted] = rank.ended.get(counted, 0) + 1
                rank.done.append(replace(op, end_ns=self.now_ns))
                rank.flying.remove(op)
        return not rank.flying

    def _is_over(self, place: Place, op: Op) -> bool:
        if op.kind is OpKind.COLLECTIVE:
            all_of_it = _simulated(op.communicator)
            return self.arrived[(*_group(place, op.communicator), op.seq)] == all_of_it
        half = "recv" if op.name == "send" else "send"
        peer = self.ranks[place[0], op.peer, place[2]]
        return peer.called.get(_counted(half, op.communicator, place[1]), 0) > op.seq


def _counted(name: str, shelf: int, peer: int) -> tuple[int, int | str]:
    """What is numbered together: a group's collectives, the sends to one peer."""
    return (shelf, -1) if peer < 0 else (peer, name)


def _group(place: Place, shelf: int) -> tuple[object, ...]:
    pipeline, stage, tensor = place
    return ((shelf,), (shelf, pipeline, stage), (shelf, pipeline, tensor), (shelf, stage, tensor))[
        shelf
    ]


def _simulated(shelf: int) -> int:
    """Ranks of a group that are simulated."""
    return (2 * STAGES * TENSOR, TENSOR, STAGES, 2)[shelf]


class LargeJob:
    """All ranks of a job that hangs.

    Args:
        fault: of one of them; pipelines: how many there are.
    """

    def __init__(self, fault: str, pipelines: int) -> None:
        self._simulation = Simulation(fault)
        self._simulation.run()
        self._pipelines, self._bad = pipelines, pipelines // 2
        self.world = pipelines * STAGES * TENSOR
        self.at_fault = (self._bad * STAGES + BAD_STAGE) * TENSOR + BAD_TENSOR

    def captured(self, rank: int, keep: int) -> tuple[RankView, RankDump]:
        """What its node knows of a rank, with so many finished operations."""
        pipeline, inner = divmod(rank, STAGES * TENSOR)
        stage, tensor = divmod(inner, TENSOR)
        simulated = self._simulation.ranks[int(pipeline == self._bad), stage, tensor]
        hook = _state(rank, simulated, self._simulation.now_ns, self._pipelines, keep)
        use = CpuUse(0.01, 1.0)
        seen = RankView(rank, f"n{rank // RANKS_A_NODE}", 4000 + rank, True, "S", hook, cpu=use)
        return seen, _dump(rank, self.world, simulated.flying)

    def messages(self, ranks: Sequence[int], keep: int) -> Iterator[bytes]:
        """What each node sends of these ranks: views and stacks."""
        of_node: dict[int, list[int]] = {}
        for rank in ranks:
            of_node.setdefault(rank // RANKS_A_NODE, []).append(rank)
        for own in of_node.values():
            views, dumps = zip(*(self.captured(rank, keep) for rank in own), strict=True)
            yield codec.encode_capture(views, dumps, codec.LIMIT_BYTES, in_full=own)[0]


def _state(rank: int, simulated: Rank, end_ns: int, pipelines: int, keep: int) -> HookState:
    pipeline, inner = divmod(rank, STAGES * TENSOR)
    stage, tensor = divmod(inner, TENSOR)
    world = pipelines * STAGES * TENSOR
    shape = (
        (rank, world, "0"), (tensor, TENSOR, f"tp{pipeline}.{stage}"),
        (stage, STAGES, f"pp{pipeline}.{tensor}"), (pipeline, pipelines, f"dp{stage}.{tensor}"),
    )  # fmt: skip
    called = [simulated.called.get((shelf, -1), 0) for shelf in range(_GROUPS)]
    flying = tuple(simulated.flying)
    return HookState(
        pid=4000 + rank, start_ticks=5, rank=rank, local_rank=rank % RANKS_A_NODE,
        world_size=world, now_ns=end_ns + _HUNG_S * _SECOND, boot_to_unix_ns=0,
        started=len(simulated.done) + len(flying), finished=len(simulated.done),
        last_finish_ns=simulated.done[-1].end_ns, in_flight=flying,
        recent=tuple(simulated.done[-keep:]),
        communicators=tuple(
            Communicator(i, *own, called[i] - 1) for i, own in enumerate(shape)
        ),
        transfers=tuple(
            TransferCount(2, name == "recv", peer, 0, count,
                          simulated.ended.get((peer, name), 0), (_BYTES[str(name)],) * 4)
            for (peer, name), count in simulated.called.items() if name in ("send", "recv")
        ),
    )  # fmt: skip


def _dump(rank: int, world: int, flying: Sequence[Op]) -> RankDump:
    torch = f"{_SITE}/torch/distributed/distributed_c10d.py"
    call = torch_name(flying[-1].name) if flying else ""
    inner = [Frame(call, f"{torch}:3252")] if flying else [Frame("read", "/job/tokens.py:31")]
    outer = [Frame(f"layer_{depth}", f"/job/model.py:{100 + depth}") for depth in range(12)]
    frames = (*inner, *outer, Frame("train", "/job/train.py:88"))
    main = ThreadStack(4000 + rank, "MainThread", frames, Role.MAIN, "S", kernel="futex_do_wait")
    idle = ThreadStack(
        9000 + rank, "pin_memory", (Frame("get", "/usr/lib/python3.11/queue.py:171"),)
    )
    return RankDump(rank, world, 4000 + rank, f"n{rank // RANKS_A_NODE}", python=(main, idle))
