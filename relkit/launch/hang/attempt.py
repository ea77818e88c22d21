"""This node's ranks in one attempt of the job, as they are watched; what came of watching them."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from relkit.hang.deaths import died, is_before_first_step
from relkit.hang.model import RankView
from relkit.launch.hang.observe import Observer
from relkit.launch.hang.state_source import Occasion
from relkit.launch.job.attempt import Attempt
from relkit.launch.job.exchange import LedMailbox
from relkit.launch.job.on_hang import OnHang
from relkit.launch.job.settings import ExitStatus, LocalRank
from relkit.post_mortem.collector import NO_DEATHS, DeathCollector
from relkit.stacks.model import RankDump

if TYPE_CHECKING:
    from relkit.hang.suspicion.watch import Turn

# How far apart ranks fail of what all of them meet as they begin.
ALIKE_S = 1.0
_LOOK_S = 0.05
# The launcher takes them several times a second.
MAX_TURNS = 256


@dataclass(frozen=True, slots=True)
class WatchedRanks:
    """This node's ranks in one attempt of the job, and how they are looked at.

    Args:
        attempt: its world_size is 0 where that is to be taken from the recorders.
        observer: reads the recorders and /proc of this node.
        mailbox: to the other nodes.
        ranks: this node's ranks now.
        exit_statuses: how this node's ranks ended, by rank, as far as the launcher knows.
        deaths: asks this host why a rank died.
        sees_all: False where other nodes watch their ranks by themselves, so that it proves nothing
            that this one knows nothing of them.
    """

    attempt: Attempt
    observer: Observer
    mailbox: LedMailbox
    ranks: Callable[[], Sequence[LocalRank]]
    exit_statuses: Callable[[], Mapping[int, ExitStatus]]
    deaths: DeathCollector = NO_DEATHS
    sees_all: bool = True

    @property
    def job_id(self) -> str:
        """The run; goes into every dump."""
        return self.attempt.job_id

    @property
    def world_size(self) -> int:
        """Ranks in the job; 0 where the launcher does not know."""
        return self.attempt.world_size

    def local_views(self, *, recent: bool) -> tuple[RankView, ...]:
        """This node's ranks now.

        Args:
            recent: with the operations that each rank finished last.
        """
        return self.observer.views(self.ranks(), self.exit_statuses(), recent=recent)

    def closer_views(self, views: Sequence[RankView], occasion: Occasion) -> tuple[RankView, ...]:
        """The same local ranks, with what sources beside the hook say now, for a verdict."""
        if not self.observer.has_source:
            return tuple(views)
        self.observer.look_closely(occasion)
        return self.local_views(recent=True)

    def with_others_that_fail(
        self, views: Sequence[RankView], timeout_s: float = ALIKE_S
    ) -> tuple[RankView, ...]:
        """The same local ranks, once the others had time to fail as the first one did.

        What is wrong before the first step is most often wrong for all of them.
        """
        end_s = time.monotonic() + timeout_s
        while (
            any(died(view) and (view.exit_code or 0) > 0 for view in views)
            and any(view.alive for view in views)
            and is_before_first_step(views)
            and time.monotonic() < end_s
        ):
            time.sleep(_LOOK_S)
            views = self.local_views(recent=True)
        return tuple(views)

    def with_ends(self, views: Sequence[RankView]) -> tuple[RankView, ...]:
        """The same local ranks, those that have ended since seen once more: how, and what at last.

        A capture takes seconds, and whoever fails closes its connections before it has ended: its
        peers can be seen to fail first.
        """
        ended = self.observer.ended(views)
        if not ended:
            return tuple(views)
        now = {view.rank: view for view in self.local_views(recent=True) if view.rank in ended}
        return tuple(now.get(view.rank, view) for view in views)

    def with_deaths(self, views: Sequence[RankView]) -> tuple[RankView, ...]:
        """The same views, with what this host shows of those of these local ranks that died.

        To be called before the launcher reaps them.
        """
        return tuple(self._with_death(view) for view in views)

    def _with_death(self, view: RankView) -> RankView:
        if not died(view):
            return view
        death = self.deaths.evidence(view.rank, view.pid)
        if death.raised:
            failed_unix_s = death.raised_unix_s or view.failed_unix_s
            return replace(view, death=death, error=death.raised, failed_unix_s=failed_unix_s)
        return replace(view, death=death)

    def with_core_stacks(self, views: Sequence[RankView], timeout_s: float) -> tuple[RankView, ...]:
        """The same views, with the stack from the first core file that there is.

        Args:
            timeout_s: the longest that it may take, s.
        """
        for i, view in enumerate(views):
            if view.death is not None and view.death.core:
                stack = self.deaths.core_stack(view.death.core, timeout_s)
                told = replace(view, death=replace(view.death, core_stack=stack))
                return (*views[:i], told, *views[i + 1 :])
        return tuple(views)

    def world_size_of(self, views: Sequence[RankView]) -> int:
        """Ranks in the job; the best guess from these views where the launcher does not know."""
        if self.world_size:
            return self.world_size
        highest_rank = max((view.rank for view in views), default=-1)
        recorded = max((view.hook.world_size for view in views if view.hook), default=1)
        return max(highest_rank + 1, recorded)

    def capture(
        self, views: Sequence[RankView], deadline_s: float, *, world_size: int, job_id: str
    ) -> tuple[RankDump, ...]:
        """The stacks of those of these local ranks that are alive.

        Args:
            deadline_s: the longest that it may take, s.
            world_size, job_id: go into every dump.
        """
        # Not at the top: the workers would start later for it, as it imports the diagnosis.
        from relkit.launch.hang import incident

        return incident.capture_local(
            views,
            self.observer,
            job_id=job_id,
            world_size=world_size,
            deadline_s=deadline_s,
        )


@dataclass(slots=True)
class WatchState:
    """What the launcher's thread and the watch of an attempt know from each other.

    Args:
        failure: a worker of this node failed: what happened; "" for none.
        remote_failure: node 0 was told that a worker of another node failed: what happened.
        failure_handled: that failure is part of an incident already.
        action: what to do with the job; None to go on.
        hung: the job hangs, and has not moved since.
        captured: set once this node's ranks were captured after a failure.
        judged: set once this node knows the verdict on a failure.
        reporting: an incident is being captured, judged or written down.
        suspicions: what has become of suspicions, to be noted by the launcher; the newest ones.
    """

    failure: str = ""
    remote_failure: str = ""
    failure_handled: bool = False
    action: OnHang | None = None
    hung: bool = False
    captured: threading.Event = field(default_factory=threading.Event)
    judged: threading.Event = field(default_factory=threading.Event)
    reporting: bool = False
    suspicions: deque[Turn] = field(default_factory=lambda: deque(maxlen=MAX_TURNS))
