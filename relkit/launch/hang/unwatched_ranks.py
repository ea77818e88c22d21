"""Says, once each, what keeps ranks of this node from being watched."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from relkit.hang.model import RankView
from relkit.launch.hang.observe import Observer
from relkit.launch.job.settings import Log
from relkit.ranks import RankSet

# A rank without a recorder is reported after this time, or after the hang timeout if longer.
MIN_UNSEEN_S = 60.0


class UnwatchedRanks:
    """What one node has to say of its recorders; called by the monitor's thread only.

    Args:
        observer: reads them.
        hang_timeout_s: the user's limit, s.
        log: writes one line to the terminal.
    """

    def __init__(self, observer: Observer, hang_timeout_s: float, log: Log) -> None:
        self._observer, self._log = observer, log
        self._patience_s = max(MIN_UNSEEN_S, hang_timeout_s)
        self._began_s: float | None = None
        self._unseen_reported = False
        self._removed_reported = False
        self._unreadable_reported: set[Path] = set()
        self._refusals_reported: set[str] = set()

    def report(self, now_s: float, local: Sequence[RankView]) -> None:
        """Log what was not logged yet.

        Args:
            now_s: monotonic time, s.
            local: this node's ranks.
        """
        self._report_unseen(now_s, local)
        self._report_removed(local)
        self._report_unreadable()
        self._report_refusals(local)

    def _report_unseen(self, now_s: float, local: Sequence[RankView]) -> None:
        """Ranks that have no recorder although there was time enough for one."""
        self._began_s = now_s if self._began_s is None else self._began_s
        if self._unseen_reported or now_s - self._began_s < self._patience_s:
            return
        self._unseen_reported = True
        unseen = RankSet.of(view.rank for view in local if view.alive and view.hook is None)
        if unseen:
            self._log(
                f"rank {unseen.fold()}: no operation seen yet; either the first one is still to "
                "come, or the hook is not loaded there (run `relkit doctor`)"
            )

    def _report_removed(self, local: Sequence[RankView]) -> None:
        """Recorder files that somebody has removed while their ranks run."""
        folder, removed = self._observer.removed_folder, self._observer.removed
        if self._removed_reported or (folder is None and not removed):
            return
        self._removed_reported = True
        watched = RankSet.of(view.rank for view in local if view.pid in removed)
        lost = RankSet.of(view.rank for view in local if view.alive and view.hook is None)
        what = f"{folder} has been removed" if folder else "recorder files have been removed"
        if watched:
            what += f"; {watched.in_words()} can be watched on, as their files are open here"
        if lost:
            what += f"; hangs of {lost.in_words()} are not seen from now on"
        self._log(
            f"{what}. logind's RemoveIPC=yes, the epilog of another job or a cleaner of /dev/shm "
            "does that: have it leave relkit-* alone"
        )

    def _report_unreadable(self) -> None:
        """Recorder files that stay unreadable."""
        for path, why in self._observer.unreadable.items():
            if path not in self._unreadable_reported:
                self._unreadable_reported.add(path)
                self._log(f"{path.name} cannot be read ({why}); that process is not watched")

    def _report_refusals(self, local: Sequence[RankView]) -> None:
        """Reasons for which processes record nothing."""
        ranks = {view.pid: view.rank for view in local}
        for refusal in self._observer.take_refusals():
            if refusal.reason in self._refusals_reported:
                continue
            self._refusals_reported.add(refusal.reason)
            who = f"pid {refusal.pid}"
            if refusal.pid in ranks:
                who = f"rank {ranks[refusal.pid]} ({who})"
            self._log(
                f"{who} runs without a recorder: {refusal.reason}; its hangs are not detected"
            )
