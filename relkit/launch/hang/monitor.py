"""The monitor thread of a launcher: it ticks the watch of the current attempt."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from relkit.errors import RelkitError
from relkit.launch.hang.attempt import WatchedRanks, WatchState
from relkit.launch.job.exchange import Mailbox, wait_for_thread
from relkit.launch.job.on_hang import OnHang
from relkit.launch.job.settings import Log, MonitorSettings, Publish
from relkit.log_lines import warning
from relkit.process.interruptible_wait import is_set_within
from relkit.stacks.model import RankDump

if TYPE_CHECKING:
    from relkit.hang.suspicion.watch import Turn
    from relkit.launch.hang.watch import Watch

# Longest time that a failing job waits for its post-mortem: until it is clear who leads, for the
# capture, and for the other nodes.
POST_MORTEM_S = 15.0
# Longest time that a following node waits for node 0's verdict after that.
JUDGEMENT_S = 2.0
# Longest time that the launcher waits at its end for a report that is being written.
CLOSE_S = 30.0
# How often the monitoring of one attempt starts again after an error that was not expected.
MAX_RESTARTS = 5


def first_line_of(error: BaseException) -> str:
    """The first line of an error's text, bounded."""
    return (str(error).splitlines() or [""])[0][:200]


def tick_interval_s(hang_timeout_s: float) -> float:
    """Time between two looks: fine enough for short timeouts, cheap for the usual ones."""
    return min(1.0, max(0.2, hang_timeout_s / 40))


class Monitor:
    """Runs beside the launcher and never touches a healthy worker.

    Args:
        settings: timeout and action.
        publish, write_dumps, log: see Watch.
        finish: is called at the end of close().
    """

    def __init__(
        self,
        settings: MonitorSettings,
        *,
        publish: Publish,
        write_dumps: Callable[[Sequence[RankDump]], None],
        log: Log,
        finish: Callable[[], None] = lambda: None,
    ) -> None:
        self._finish = finish
        self._settings, self._publish, self._write_dumps, self._log = (
            settings,
            publish,
            write_dumps,
            log,
        )
        self._watch: Watch | None = None
        self._mailbox: Mailbox | None = None
        # Of the newest attempt, also once its workers are about to be stopped.
        self._state = WatchState()
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._closing = False
        self._restarts_left = MAX_RESTARTS
        self._thread = self._new_thread()

    @property
    def hang_timeout_s(self) -> float:
        """The user's limit, s."""
        return self._settings.hang_timeout_s

    @property
    def log(self) -> Log:
        """Writes one line to the terminal."""
        return self._log

    def begin(self, watched: WatchedRanks) -> None:
        """Watch a new attempt of the job, whose workers run already."""
        # Not at the top: the workers would start later for it, as it imports the diagnosis.
        from relkit.launch.hang.watch import Watch

        watch = Watch(
            watched,
            self._settings,
            publish=self._publish,
            write_dumps=self._write_dumps,
            log=self._log,
        )
        with self._lock:
            self._watch, self._mailbox, self._state = watch, watched.mailbox, watch.state
            self._restarts_left = MAX_RESTARTS
        if not self._thread.is_alive() and not self._closing:
            # One that has ended, after too many errors in an earlier attempt, cannot start again.
            if self._thread.ident is not None:
                self._thread = self._new_thread()
            self._thread.start()

    def pause(self) -> None:
        """Stop watching: the workers are about to be stopped. A running report is finished."""
        with self._lock:
            self._watch = None

    def action(self) -> OnHang | None:
        """What to do with the job now; None to go on. Never REPORT, which needs nothing more."""
        watch = self._watch
        if watch is None or watch.state.action is OnHang.REPORT:
            return None
        return watch.state.action

    @property
    def hung(self) -> bool:
        """The current attempt hangs, and has not moved since that was detected."""
        watch = self._watch
        return watch is not None and watch.state.hung

    @property
    def judged_hung(self) -> bool | None:
        """The same where this node decides; None where another does, or nobody watches."""
        watch = self._watch
        if watch is None or not watch.leads or not self._thread.is_alive():
            return None
        return watch.state.hung

    @property
    def remote_failure(self) -> str:
        """What node 0 was told of a worker of another node that failed; "" for nothing."""
        watch = self._watch
        return "" if watch is None else watch.state.remote_failure

    def take_suspicions(self) -> tuple[Turn, ...]:
        """What has become of suspicions since the last call."""
        waiting, turns = self._state.suspicions, []
        while waiting:
            turns.append(waiting.popleft())
        return tuple(turns)

    def failed(self, sentence: str, timeout_s: float = POST_MORTEM_S) -> None:
        """A worker failed: have its peers captured before they are stopped.

        Args:
            sentence: what happened, for the report.
            timeout_s: the longest that the launcher waits for the capture, s.
        """
        watch = self._watch
        if watch is None or not self._thread.is_alive():
            return
        watch.fail(sentence)
        self._wake.set()
        is_set_within(watch.state.captured, timeout_s)
        if not watch.leads:
            # So that this node's log names the rank at fault as well.
            is_set_within(watch.state.judged, JUDGEMENT_S)

    def close(self) -> None:
        """End the thread; waits for a report that is being written."""
        self._closing = True
        self._wake.set()
        if self._thread.is_alive():
            wait_for_thread(self._thread, self._mailbox, CLOSE_S, lambda: self._state.reporting)
        self._finish()

    def _new_thread(self) -> threading.Thread:
        return threading.Thread(target=self._run, name="relkit-monitor", daemon=True)

    def _run(self) -> None:
        """Monitor; never ends without a line in the log that says why."""
        while not self._closing:
            try:
                self._tick_until_closed()
            except Exception as error:  # noqa: BLE001 (whatever it is, the job must stay watched)
                what = f"monitoring stopped: {type(error).__name__}: {first_line_of(error)}"
                if not self._restarts_left:
                    self._log(warning(f"{what}; it stays off, so hangs are not detected any more"))
                    return
                self._restarts_left -= 1
                self._log(warning(f"{what}; it starts again"))
                self._wake.wait(tick_interval_s(self._settings.hang_timeout_s))

    def _tick_until_closed(self) -> None:
        interval_s = tick_interval_s(self._settings.hang_timeout_s)
        complained = ""
        while not self._closing:
            watch = self._watch
            if watch is not None:
                try:
                    watch.tick(time.monotonic())
                except (RelkitError, OSError, ImportError) as error:
                    # A failing monitor must not end the job; each problem is logged once.
                    if str(error) != complained:
                        complained = str(error)
                        self._log(warning(f"monitoring hit a problem: {error}"))
            self._wake.wait(interval_s)
            self._wake.clear()
