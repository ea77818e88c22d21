"""What the launcher says and notes of suspicions; nothing of it is done to the job."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from relkit.hang.columns.ranks import RankColumns
from relkit.hang.detection.detector import HangDetector, JobHealth
from relkit.hang.detection.view_columns import columns_of
from relkit.hang.live_sources.contradictions import with_one_numbering
from relkit.hang.model import JobView, RankView, Suspicion
from relkit.hang.suspicion.watch import SuspicionWatch, Turn, What
from relkit.hang.suspicion.whom_to_ask import ALL_UP_TO
from relkit.hang.words import of_ranks
from relkit.launch.hang.attempt import WatchedRanks, WatchState
from relkit.launch.job.settings import Log
from relkit.log_lines import warning

# At most one line about a rank in this time.
LINE_EVERY_S = 60.0
_NOBODY = -1


class Suspicions:
    """Of one attempt, on the node that decides.

    Args:
        watched: the job; state: takes what is to be noted of them.
        hang_timeout_s: the user's limit, s.
        log: writes one line to the terminal.
    """

    def __init__(
        self, watched: WatchedRanks, state: WatchState, hang_timeout_s: float, log: Log
    ) -> None:
        self._watched, self._state = watched, state
        self._hang_timeout_s, self._log = hang_timeout_s, log
        self._watch = SuspicionWatch()
        self._said_s: dict[int, float] = {}
        self._told: set[int] = set()

    @property
    def present(self) -> tuple[Suspicion, ...]:
        """Those that are not over."""
        return self._watch.present

    @property
    def is_near(self) -> bool:
        """Something is suspicious, or soon will be."""
        return self._watch.is_near

    def look(
        self,
        now_s: float,
        detector: HangDetector,
        health: JobHealth,
        local: Sequence[RankView],
        remote: Sequence[RankView],
    ) -> None:
        """See what the detector's newest look means.

        Args:
            now_s: monotonic time, s.
            detector, health: after that look; local, remote: the ranks that it has seen.
        """
        ranks = columns_of((*local, *remote))
        self.look_at(now_s, detector, health, local, lambda: remote, ranks)

    def look_at(
        self,
        now_s: float,
        detector: HangDetector,
        health: JobHealth,
        local: Sequence[RankView],
        others: Callable[[], Sequence[RankView]],
        ranks: RankColumns,
    ) -> None:
        """The same for a job of any size.

        Args:
            now_s, detector, health, local: see look.
            others: the ranks of the other nodes; asked only where there is something to judge.
            ranks: all of them.
        """

        def closer() -> JobView:
            near = tuple(local)
            if self._watched.mailbox.nodes == 1:
                # Brief looks leave out what was called before, and the counts of transfers.
                near = self._watched.local_views(recent=True)
            views = with_one_numbering((*near, *others()))
            is_large = len(ranks) > ALL_UP_TO
            if is_large:
                # Only some were asked for; a summary alone does not say what its rank is part of.
                views = tuple(v for v in views if v.hook is not None or not v.alive)
            return JobView(
                self._watched.job_id,
                self._watched.world_size_of(views),
                tuple(sorted(views, key=lambda view: view.rank)),
                self._hang_timeout_s,
                has_stacks=False,
                sees_all=self._watched.sees_all and not is_large,
                is_sample=is_large,
            )

        for turn in self._watch.update(detector.look, health, ranks, closer):
            self._say(now_s, turn)
            if turn.is_counted:
                self._state.suspicions.append(turn)

    def _say(self, now_s: float, turn: Turn) -> None:
        ranks = set(turn.suspicion.ranks) or {_NOBODY}
        if turn.what is What.BEGAN:
            fresh = [r for r in ranks if now_s - self._said_s.get(r, -LINE_EVERY_S) >= LINE_EVERY_S]
            if fresh:
                self._said_s |= dict.fromkeys(ranks, now_s)
                self._told |= ranks
                named = next(iter(turn.suspicion.ranks), None) if len(ranks) == 1 else None
                self._log(warning(f"suspicion: {turn.suspicion.sentence}", "suspicion", named))
        elif turn.what is What.WENT_ON and ranks & self._told:
            self._told -= ranks
            self._log(went_on_line(turn.suspicion))


def went_on_line(suspicion: Suspicion) -> str:
    """`rank 2 goes on after 23 s`."""
    ranks = suspicion.ranks
    who = of_ranks(ranks) if ranks else "the job"
    return f"{who} {'go' if len(ranks) > 1 else 'goes'} on after {suspicion.stalled_s:.0f} s"
