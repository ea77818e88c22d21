"""Who is in the job: which ranks have registered, when each was last heard, and who is lost."""

from __future__ import annotations

from collections.abc import Iterable

from relkit.ttp.messages import Heartbeat, Hello
from relkit.ttp.replicas import ReplicaMap


class Membership:
    """The ranks of one attempt, as far as they are known to the controller.

    Args:
        world_size: ranks of the job.

    Attributes:
        dead: ranks that are lost for good; nothing that they send counts.
        suspects: living ranks that have missed their heartbeats since a fault began.
        done: ranks that have finished training.
        steps: the committed step of each rank, as last heard.
        step_s: how long a step takes, seconds; the longest of the last ones.
    """

    def __init__(self, world_size: int) -> None:
        self.world_size = world_size
        self.dead: set[int] = set()
        self.suspects: set[int] = set()
        self.done: set[int] = set()
        self.steps: dict[int, int] = {}
        self.step_s = 0.0
        self._maps: dict[str, ReplicaMap] = {}
        self._heard_s: dict[int, float] = {}

    @property
    def living(self) -> tuple[int, ...]:
        """Ranks that have registered and were not lost; also those that wait for the last one."""
        return tuple(sorted(self._heard_s.keys() - self.dead))

    @property
    def absent(self) -> set[int]:
        """Ranks that have not registered."""
        return set(range(self.world_size)) - self._heard_s.keys()

    @property
    def all_done(self) -> bool:
        """Whether every living rank has finished training."""
        # Asked for each rank that finishes, and the sets are large: so they are counted first.
        if len(self.done) + len(self.dead) < len(self._heard_s):
            return False
        return self._heard_s.keys() - self.dead <= self.done

    @property
    def is_complete(self) -> bool:
        """Whether all have registered."""
        return len(self._heard_s) >= self.world_size

    @property
    def is_majority(self) -> bool:
        """Whether more than half of all ranks are there."""
        return 2 * len(self.living) > self.world_size

    @property
    def holds_everything(self) -> bool:
        """Whether every shard of every group has a living holder, as far as the maps tell."""
        living = set(self.living)
        covered = {rank for each in self.maps for rank in each.ranks}
        return len(covered) == self.world_size and all(
            not living.isdisjoint(held_by) for each in self.maps for held_by in each.holders
        )

    @property
    def maps(self) -> list[ReplicaMap]:
        """The replica maps of all groups."""
        return list(self._maps.values())

    def register(self, hello: Hello, now_s: float) -> None:
        """A rank is there."""
        self.done.discard(hello.rank)
        self._heard_s[hello.rank] = now_s
        self.steps[hello.rank] = hello.step
        for each in hello.maps:
            self._maps.setdefault(each.name, each)

    def is_registered(self, rank: int) -> bool:
        """Whether the rank has said that it is there."""
        return rank in self._heard_s

    def heard(self, rank: int, now_s: float) -> None:
        """A message of the rank has come."""
        self._heard_s[rank] = now_s
        self.suspects.discard(rank)

    def beat(self, heartbeat: Heartbeat) -> None:
        """Take over what a heartbeat says."""
        self.steps[heartbeat.rank] = heartbeat.step
        self.step_s = max(heartbeat.step_s, 0.9 * self.step_s)

    def silent(self, now_s: float, silent_s: float) -> tuple[int, ...]:
        """Living ranks of which nothing was heard for longer than `silent_s`."""
        return tuple(rank for rank in self.living if now_s - self._heard_s[rank] > silent_s)

    def lose(self, ranks: Iterable[int]) -> None:
        """These ranks are lost for good."""
        self.dead.update(ranks)
        self.suspects -= self.dead

    def forget(self) -> None:
        """All have finished; the same program may train, and register, once more."""
        self._heard_s, self._maps = {}, {}
        self.done.clear()
