"""Simulated ranks in simulated time, led by the real controller."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

from relkit.ttp.actions import Action, Kill, Limits, Over, Phase, Send
from relkit.ttp.controller import Controller
from relkit.ttp.messages import (
    Commit,
    Committed,
    Discard,
    Exit,
    FaultNotice,
    Heartbeat,
    Hello,
    Message,
    Pause,
    Save,
    Saved,
    SaveFailed,
    State,
)
from relkit.ttp.plan import Survivor
from relkit.ttp.replicas import ReplicaMap, replica_map
from relkit.ttp.save_outcome import SaveOutcome

TP2_DP2 = (replica_map("tp0 pp0", (0, 2)), replica_map("tp1 pp0", (1, 3)))


@dataclass
class Job:
    """Ranks that answer as real ones would, after the delays they are given.

    Args:
        deaths: rank -> when it dies; silent: rank -> from when on it says nothing.
        wakes: rank -> when one that is silent goes on; it answers then what it was sent meanwhile.
        delays: how long each answer takes, used in turn; slow: rank -> how long its states take.
    """

    maps: tuple[ReplicaMap, ...]
    size: int
    deaths: dict[int, float] = field(default_factory=dict)
    silent: dict[int, float] = field(default_factory=dict)
    wakes: dict[int, float] = field(default_factory=dict)
    slow: dict[int, float] = field(default_factory=dict)
    delays: Sequence[float] = (0.01,)
    steps: dict[int, int] = field(default_factory=dict)
    ready: frozenset[int] = frozenset()
    save_fails: dict[int, SaveFailed] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        self.controller = Controller(self.size, self.limits)
        self.now_s = 0.0
        self.killed: set[int] = set()
        self.outcome: SaveOutcome | None = None
        self.sent: list[Send] = []
        self.discarded = 0
        self.codes: dict[int, int] = {}
        self._queue: list[tuple[float, int, int, Message | str]] = []
        self._count = 0

    def run(
        self, *events: tuple[float, Message | str], until_s: float = 400.0
    ) -> SaveOutcome | None:
        """Register everybody, let things happen, and see how it ends."""
        for rank in range(self.size):
            maps = tuple(m for m in self.maps if rank in m.ranks)
            self._at(0.0, rank, Hello(rank, self.size, 100 + rank, "h", self._step(rank), maps))
        for rank, when in self.deaths.items():
            self._at(when, rank, "dies")
        for when, event in events:
            self._at(when, getattr(event, "rank", -1), event)
        beat = 0.0
        while self.outcome is None and self.now_s < until_s:
            due = self.now_s + self.controller.wait_s(self.now_s)
            if self._queue and self._queue[0][0] <= due:
                self.now_s, _, rank, event = heapq.heappop(self._queue)
                self._happens(rank, event)
            else:
                self.now_s = due
            if self.now_s >= beat:
                beat = self.now_s + self.limits.heartbeat_s
                for rank in range(self.size):
                    if self._speaks(rank):
                        self._do(self.controller.received(self._beat(rank), self.now_s))
            self._do(self.controller.tick(self.now_s))
        return self.outcome

    def _beat(self, rank: int) -> Heartbeat:
        return Heartbeat(rank, self._step(rank), "reduce", 0.1)

    def _step(self, rank: int) -> int:
        return self.steps.get(rank, 5)

    def _speaks(self, rank: int) -> bool:
        dead = self.now_s >= self.deaths.get(rank, 1e9) or rank in self.killed
        from_s, until_s = self.silent.get(rank, 1e9), self.wakes.get(rank, 1e9)
        return not dead and not from_s <= self.now_s < until_s

    def _at(self, when_s: float, rank: int, event: Message | str) -> None:
        self._count += 1
        heapq.heappush(self._queue, (when_s, self._count, rank, event))

    def _happens(self, rank: int, event: Message | str) -> None:
        if event == "dies":
            reason = f"rank {rank} was killed by SIGKILL"
            self._do(self.controller.lost(rank, reason, self.now_s))
        elif event == "stop":
            self._do(self.controller.stop("SIGTERM", self.now_s))
        elif event == "hang":
            self._do(self.controller.hung("the job hangs", self.now_s))
        elif not isinstance(event, str) and self._speaks(rank):
            self._do(self.controller.received(event, self.now_s))
        elif not isinstance(event, str) and rank in self.wakes and self.now_s < self.wakes[rank]:
            self._at(self.wakes[rank], rank, event)

    def _do(self, actions: Sequence[Action]) -> None:
        for action in actions:
            if isinstance(action, Send):
                self.sent.append(action)
                for rank in action.ranks:
                    self._receives(rank, action.message)
            elif isinstance(action, Kill):
                self.killed.add(action.rank)
            elif isinstance(action, Over):
                assert self.outcome is None
                self.outcome = action.outcome

    def _receives(self, rank: int, message: Message) -> None:
        answer: Message | None = None
        if isinstance(message, FaultNotice | Pause):
            survivor = Survivor(rank, self._step(rank), ready=rank in self.ready)
            answer = State(rank, message.epoch, survivor)
        elif isinstance(message, Save):
            if rank in message.plan.roll_forward:
                self.steps[rank] = message.plan.step
            writes = any(group.writer == rank for group in message.plan.groups)
            files = {f"{rank}.pt": ("00", 1)} if writes else {}
            answer = Saved(rank, message.epoch, files)
            if rank in self.save_fails:
                failed = self.save_fails[rank]
                answer = SaveFailed(
                    rank, message.epoch, failed.sentence, failed.refused, failed.peer
                )
        elif isinstance(message, Commit):
            answer = Committed(rank, message.epoch, "iter_0000005")
        elif isinstance(message, Discard):
            self.discarded += 1
        elif isinstance(message, Exit):
            self.codes[rank] = message.code
        if answer is not None:
            delay_s = self.delays[self._count % len(self.delays)]
            if isinstance(answer, State):
                delay_s = self.slow.get(rank, delay_s)
            self._at(self.now_s + delay_s, rank, answer)


def dp(size: int) -> tuple[ReplicaMap, ...]:
    return (replica_map("tp0 pp0", range(size)),)


def ended(job: Job, *events: tuple[float, Message | str]) -> SaveOutcome:
    outcome = job.run(*events)
    assert outcome is not None
    assert job.controller.phase is Phase.OVER
    return outcome
