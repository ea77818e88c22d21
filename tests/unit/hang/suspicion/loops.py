"""A training loop on a made-up clock, looked at once a second as the monitor does."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from relkit.hang.detection.detector import HangDetector
from relkit.hang.model import CpuUse, JobView, RankView
from relkit.hang.suspicion.watch import SuspicionWatch, Turn, What
from relkit.hook.model import Communicator, HookState, Op, OpKind

SECOND = 10**9
TIMEOUT_S = 300.0


@dataclass
class Rank:
    """One rank: operations finished, and the one that it is in since when."""

    seq: int = -1
    since_s: float | None = None
    finish_s: float = 0.0
    letter: str = "S"
    cpu: float = 0.0
    waits: float = 0.0
    products: int = 0
    size: int = 4096
    name: str = "allreduce"


@dataclass
class Loop:
    """Ranks that step together, unless one stalls; `turns` are all that were told.

    Args:
        world: ranks; timeout_s: of the hang detector.
    """

    world: int = 4
    timeout_s: float = TIMEOUT_S
    now_s: float = 0.0
    ranks: list[Rank] = field(default_factory=list)
    turns: list[tuple[float, Turn]] = field(default_factory=list)
    judged: int = 0

    def __post_init__(self) -> None:
        self.ranks = [Rank() for _ in range(self.world)]
        self.detector = HangDetector(self.timeout_s)
        self.watch = SuspicionWatch()

    def views(self) -> tuple[RankView, ...]:
        return tuple(self._view(number, rank) for number, rank in enumerate(self.ranks))

    def _view(self, number: int, rank: Rank) -> RankView:
        # Each host has a clock of its own.
        begin_s = 1000.0 * (number + 1)
        ops: tuple[Op, ...] = ()
        done = rank.seq + 1
        if rank.since_s is not None:
            start_ns = round((begin_s + rank.since_s) * SECOND)
            ops = (Op(rank.name, OpKind.COLLECTIVE, rank.seq, 0, rank.size, 7, start_ns),)
            done -= 1
        hook = HookState(
            pid=100 + number,
            start_ticks=1,
            rank=number,
            local_rank=number,
            world_size=self.world,
            now_ns=round((begin_s + self.now_s) * SECOND),
            boot_to_unix_ns=0,
            started=rank.seq + 1 + rank.products,
            finished=done + rank.products,
            last_finish_ns=round((begin_s + rank.finish_s) * SECOND) if done else 0,
            in_flight=ops,
            communicators=(Communicator(0, number, self.world, "0", rank.seq),),
        )
        return RankView(
            number,
            "n0",
            100 + number,
            True,
            rank.letter,
            hook,
            cpu=CpuUse(2 * rank.cpu, 2.0, 2 * rank.waits),
        )

    def look(self, seconds: float = 1.0) -> None:
        """Let time pass, and look."""
        self.now_s += seconds
        detection = self.detector.update(self.now_s, self.views())
        turns = self.watch.update(self.detector.look, detection.health, self.views(), self._closer)
        self.turns += [(self.now_s, turn) for turn in turns]

    def _closer(self) -> JobView:
        self.judged += 1
        return JobView("job", self.world, self.views(), self.timeout_s, has_stacks=False)

    def step(self, seconds: float = 1.0, times: int = 1) -> None:
        """All ranks finish an operation together, and that is looked at."""
        for _ in range(times):
            for rank in self.ranks:
                rank.seq += rank.since_s is None
                rank.since_s, rank.finish_s = None, self.now_s + seconds
            self.look(seconds)

    def wait_in(self, ranks: Iterable[int], *, name: str = "allreduce", size: int = 4096) -> None:
        """These ranks enter the next operation, and wait in it for the others."""
        for number in ranks:
            rank = self.ranks[number]
            rank.seq, rank.since_s, rank.name, rank.size = rank.seq + 1, self.now_s, name, size

    def pause(self, seconds: float) -> None:
        """Nothing is finished for that long, looked at every second."""
        left_s = seconds
        while left_s > 0:
            self.look(min(1.0, left_s))
            left_s -= 1.0

    def stall(self, culprit: int, seconds: float, **operation: object) -> None:
        """All but one rank wait for it for that long; then all go on."""
        others = [number for number in range(self.world) if number != culprit]
        self.wait_in(others, **operation)  # type: ignore[arg-type]
        self.pause(seconds)
        self.step()

    def said(self, what: What) -> list[Turn]:
        """All turns of one kind so far."""
        return [turn for _, turn in self.turns if turn.what is what]
