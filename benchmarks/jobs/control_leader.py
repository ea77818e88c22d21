"""The leader's own part for launches/control_plane.py: real code, fed with simulated launchers.

    python benchmarks/jobs/control_leader.py NODES SECONDS

The launchers are simulated: frames are made here as the nodes that report to the leader make them,
and handed to what takes them off a link, so that only sockets and encryption are left out. In the
last seconds one rank stalls the job, and the views of those that the leader then asks for come; at
the end that is a hang, and all nodes answer the request for their captures at once.
Prints one object of JSON.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import psutil

from relkit.hang.model import CpuUse, HangVerdict, RankView
from relkit.hook.model import Communicator, HookState, Op, OpKind
from relkit.launch.control.frame import Note, Shared, decode, encode
from relkit.launch.control.note_box import NoteBox
from relkit.launch.control.tree import ancestors, children
from relkit.launch.hang import codec
from relkit.launch.hang.attempt import WatchedRanks, WatchState
from relkit.launch.hang.leader import WatchLeader
from relkit.launch.hang.links.checks import LinkChecks
from relkit.launch.hang.observe import Observer
from relkit.launch.hang.remote_views import (
    REQUEST_KEY,
    asked_ranks,
    decode_request,
    details_key,
    share_every_s,
)
from relkit.launch.hang.summary import HEAD, ROW, encode_summary
from relkit.launch.job.attempt import Attempt
from relkit.launch.job.exchange import MESSAGE_BYTES
from relkit.launch.job.on_hang import OnHang
from relkit.launch.job.settings import MonitorSettings
from relkit.stacks.model import Frame, RankDump, Role, ThreadStack

RANKS = 8
HANG_TIMEOUT_S = 1800.0
# Summaries that are not counted: the first make all that is kept, and from ten on a job is under
# way.
WARM_UP = 12
STALL_S = 15
_SECOND = 10**9
_RECENT = 16
_INCIDENT = "incident/0"
# Of a captured rank: threads with a native and a Python stack of so many frames.
_THREADS, _FRAMES = 24, 30


class FedNotes:
    """What Links is to the leader, without a thread and sockets."""

    node, leader, is_stuck = 0, 0, False
    silent: frozenset[int] = frozenset()

    def __init__(self, nodes: int) -> None:
        self.nodes = nodes
        self._box = NoteBox(0, nodes)
        self._box.move((0,))
        self.sent: dict[str, bytes] = {}
        # Of all nodes, to the request for their captures; and how long making them has taken.
        self.answer: Callable[[bytes], list[bytes]] | None = None
        self.made_s, self.made_cpu_s, self.answers, self.answer_bytes = 0.0, 0.0, 0, 0

    def take(self, data: bytes) -> None:
        """A frame has come over a link."""
        frame = decode(data, self.nodes)
        if isinstance(frame, Shared):
            self._box.take_shared(frame)
        elif isinstance(frame, Note):
            self._box.take(frame)

    def put(self, key: str, data: bytes) -> None:
        """See Mailbox."""
        self.sent[key] = data
        self._box.put(key, data)
        if self.answer is not None and key == _INCIDENT:
            begun_s, begun_cpu_s = time.monotonic(), time.thread_time()
            frames = self.answer(data)
            self.made_s = time.monotonic() - begun_s
            self.made_cpu_s = time.thread_time() - begun_cpu_s
            for frame in frames:
                self.take(frame)
            self.answers, self.answer_bytes = len(frames), sum(map(len, frames))

    def get(self, key: str) -> bytes | None:
        """See Mailbox."""
        return self._box.get(key)

    def remove(self, key: str) -> None:
        """See Mailbox."""
        self._box.remove(key)

    @property
    def launcher_address(self) -> None:
        """See LedMailbox."""

    def first(self, prefix: str) -> bytes | None:
        """See LedMailbox."""
        return self._box.first(prefix)

    def share(self, data: bytes) -> None:
        """See LedMailbox."""
        self._box.share(data)

    def take_shared(self) -> list[bytes]:
        """See LedMailbox."""
        return self._box.shared()


def views(node: int, nodes: int, second: int, stalled_s: int = 0) -> tuple[RankView, ...]:
    """Ranks of one node: they wait in a collective for a part of each second.

    Args:
        stalled_s: for how long all but the last rank of the last node have waited for that one.
    """
    now_ns = (1000 + second) * _SECOND
    world, done = nodes * RANKS, 40 * (second - stalled_s)
    since_ns = now_ns - (stalled_s * _SECOND or _SECOND // 20)
    op = Op("allreduce", OpKind.COLLECTIVE, done, 0, 1 << 26, 7, since_ns)
    recent = tuple(
        replace(op, seq=done - n, start_ns=op.start_ns - n * _SECOND // 40, end_ns=op.start_ns)
        for n in range(_RECENT, 0, -1)
    )
    made = []
    for local in range(RANKS):
        rank = node * RANKS + local
        is_late = stalled_s > 0 and rank == world - 1
        hook = HookState(
            pid=1000 + local,
            start_ticks=1,
            rank=rank,
            local_rank=local,
            world_size=world,
            now_ns=now_ns,
            boot_to_unix_ns=0,
            started=done + (not is_late),
            finished=done,
            last_finish_ns=since_ns,
            in_flight=() if is_late else (op,),
            recent=recent,
            communicators=(
                Communicator(0, rank, world, "0", done - is_late),
                Communicator(1, local, RANKS, f"{node + 1}", done),
            ),
        )
        use = CpuUse(1.0, 2.0, 0.0)
        made.append(RankView(rank, f"host{node}", 1000 + local, True, "R", hook, cpu=use))
    return tuple(made)


def frames(nodes: int, second: int, stalled_s: int) -> Iterator[bytes]:
    """What comes to the leader in a second: from each that reports to it, for all below it."""
    usual = encode_summary(1, float(second), views(0, nodes, second, stalled_s))
    block = np.dtype([("head", HEAD), ("rows", ROW, (RANKS,))])
    all_blocks = np.frombuffer(usual * (nodes - 1), block).copy()
    all_blocks["head"]["node"] = np.arange(1, nodes)
    all_blocks["head"]["host"] = [f"host{node}".encode() for node in range(1, nodes)]
    all_blocks["rows"]["rank"] = np.arange(RANKS, nodes * RANKS).reshape(-1, RANKS)
    last = encode_summary(nodes - 1, float(second), views(nodes - 1, nodes, second, stalled_s))
    all_blocks[-1] = np.frombuffer(last, block)[0]
    child_of = np.array([_child(node) for node in range(1, nodes)])
    for child in children(0, nodes):
        data = all_blocks[child_of == child].tobytes()
        yield encode(Shared(child, 0, data))


def _child(node: int) -> int:
    """Through which of the leader's children a node reports."""
    way = [node, *ancestors(node)]
    return way[-2]


def answers(notes: FedNotes, nodes: int, second: int, stalled_s: int) -> Iterator[bytes]:
    """Of the nodes that the leader has asked for more."""
    request = notes.sent.get(REQUEST_KEY)
    for node in range(1, nodes) if request else ():
        asked = decode_request(request, range(node * RANKS, (node + 1) * RANKS))
        if asked:
            told = [v for v in views(node, nodes, second, stalled_s) if v.rank in asked]
            data = codec.encode_views(told, {"at": float(second)})
            yield encode(Note(_child(node), node, 0, True, details_key(node), data))


def dump(view: RankView, world: int) -> RankDump:
    """What a capture of a rank brings."""
    frames = tuple(
        Frame(f"function_{n}", f"/opt/torch/file_{n % 7}.py:{n}") for n in range(_FRAMES)
    )
    stacks = tuple(
        ThreadStack(1000 + n, f"thread-{n}", frames, Role.OTHER) for n in range(_THREADS)
    )
    return RankDump(view.rank, world, view.pid, "S (sleeping)", stacks, stacks[:4], view.host)


def captures(request: bytes, nodes: int, second: int, stalled_s: int) -> list[bytes]:
    """The answers of all nodes to the request for their captures, as they answer it."""
    fields = codec.unpack(request)
    nothing = codec.encode_capture((), (), MESSAGE_BYTES)[0]
    made = []
    for node in range(1, nodes):
        ranks = range(node * RANKS, (node + 1) * RANKS)
        wanted = asked_ranks(fields, ranks) if "ranks" in fields else ranks
        data = nothing
        if wanted:
            told = [v for v in views(node, nodes, second, stalled_s) if v.rank in wanted]
            dumps = [dump(view, nodes * RANKS) for view in told]
            data = codec.encode_capture(told, dumps, MESSAGE_BYTES)[0]
        for key, content in ((f"{_INCIDENT}/node/{node}", data), (f"{_INCIDENT}/seen/{node}", b"")):
            made.append(encode(Note(_child(node), node, 0, True, key, content)))
    return made


class _Meter:
    """What a part of the run costs the leader, and what comes to it in that."""

    def __init__(self) -> None:
        self.cpu_s, self.messages, self.size_bytes, self.seconds = 0.0, 0, 0, 0

    def take(self, notes: FedNotes, data: bytes) -> None:
        """One message."""
        begun_s = time.thread_time()
        notes.take(data)
        self.cpu_s += time.thread_time() - begun_s
        self.messages, self.size_bytes = self.messages + 1, self.size_bytes + len(data)

    def look(self, leader: WatchLeader, second: int, local: tuple[RankView, ...]) -> None:
        """One look at the job."""
        begun_s = time.thread_time()
        leader.receive(float(second))
        leader.decide(float(second), local, alone=False)
        self.cpu_s += time.thread_time() - begun_s
        self.seconds += 1

    def as_plain(self, prefix: str) -> dict[str, float]:
        """For the driver."""
        seconds = max(1, self.seconds)
        return {
            f"{prefix}cpu_share": self.cpu_s / seconds,
            f"{prefix}messages": self.messages / seconds,
            f"{prefix}bytes": self.size_bytes / seconds,
        }


class FedRanks(WatchedRanks):
    """Its ranks are simulated: so are their captures."""

    def capture(
        self, views: Sequence[RankView], deadline_s: float, *, world_size: int, job_id: str
    ) -> tuple[RankDump, ...]:
        """See WatchedRanks."""
        return tuple(dump(view, world_size) for view in views)


def verdict(
    leader: WatchLeader, notes: FedNotes, nodes: int, second: int, stalled_s: int
) -> dict[str, float]:
    """What the verdict on the hang costs: from the request for captures to the result.

    Args:
        second: of the next summaries; stalled_s: for how long the job has stalled by then, s.
    """
    # What has been in flight for all the stall is now a hang.
    leader._detector.hang_timeout_s = STALL_S - 2.0
    for data in frames(nodes, second, stalled_s):
        notes.take(data)
    notes.answer = lambda request: captures(request, nodes, second, stalled_s)
    local = views(0, nodes, second, stalled_s)
    begun_s, cpu_s = time.monotonic(), time.thread_time()
    leader.receive(float(second))
    leader.decide(float(second), local, alone=False)
    return {
        "verdict_s": time.monotonic() - begun_s - notes.made_s,
        "verdict_cpu_s": time.thread_time() - cpu_s - notes.made_cpu_s,
        "verdict_answers": notes.answers,
        "verdict_bytes": notes.answer_bytes,
    }


def measure(nodes: int, seconds: int) -> dict[str, float]:
    """CPU seconds a second of the leader, its memory, and what comes to it."""
    notes = FedNotes(nodes)
    said: list[str] = []
    judged: list[tuple[HangVerdict, int]] = []
    attempt = FedRanks(Attempt("job", nodes * RANKS), Observer(None), notes, lambda: (), dict)
    leader = WatchLeader(
        attempt,
        WatchState(),
        MonitorSettings(HANG_TIMEOUT_S, OnHang.REPORT),
        checks=LinkChecks(notes, said.append, is_asked_for=False),
        publish=lambda _job, verdict, _report, dumps: judged.append((verdict, len(dumps))),
        log=said.append,
    )
    before_mb = psutil.Process().memory_full_info().uss / 1e6
    meters = {"warm": _Meter(), "": _Meter(), "stalled_": _Meter()}
    asked_at = told_at = gathering_cpu_s = 0.0
    told = 0
    next_s, answered = 0.0, None
    warm_s = WARM_UP * math.ceil(share_every_s(nodes))
    for second in range(warm_s + seconds + STALL_S):
        stalled_s = max(0, second - warm_s - seconds + 1)
        part = "warm" if second < warm_s else "stalled_" if stalled_s else ""
        meter = meters[part]
        request = notes.sent.get(REQUEST_KEY)
        is_due = second >= next_s
        if is_due:
            next_s = second + share_every_s(nodes)
        # Made one by one and not kept: the launchers' memory is not the leader's.
        for data in frames(nodes, second, stalled_s) if is_due else ():
            meter.take(notes, data)
        # As they are sent: with a summary, and at once where other ranks are asked about.
        has_changed, answered = request != answered, request
        for data in answers(notes, nodes, second, stalled_s) if is_due or has_changed else ():
            meter.take(notes, data)
        before_s = meter.cpu_s
        meter.look(leader, second, views(0, nodes, second, stalled_s))
        if stalled_s and not asked_at and leader.asked:
            asked_at = second
        if asked_at and not told_at:
            gathering_cpu_s += meter.cpu_s - before_s
            told = leader.told
            told_at = second if told >= leader.asked else 0.0
    later_s = max(1, math.ceil(next_s) - second)
    hang = verdict(leader, notes, nodes, second + later_s, STALL_S + later_s)
    culprits = [culprit.rank for culprit in judged[0][0].culprits] if judged else []
    return {
        "nodes": nodes,
        **hang,
        "verdict_dumps": judged[0][1] if judged else 0,
        "verdict_is_right": float(culprits == [nodes * RANKS - 1]),
        **meters[""].as_plain(""),
        **meters["stalled_"].as_plain("stalled_"),
        "memory_mb": psutil.Process().memory_full_info().uss / 1e6,
        "before_mb": before_mb,
        # Looks, of one a second, from the request to the views of all that were asked for.
        "gathered_s": told_at - asked_at if told_at else float("nan"),
        "told": told,
        # The line names the rank that holds all others up.
        "is_named": float(any(f"rank {nodes * RANKS - 1} has not joined" in each for each in said)),
        "gathering_cpu_s": gathering_cpu_s,
    }


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]), int(sys.argv[2]))))
