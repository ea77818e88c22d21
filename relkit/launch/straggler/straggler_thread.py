"""The straggler thread of a launcher: it ticks this node's part of the present attempt."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from relkit.errors import RelkitError
from relkit.launch.job.attempt import Attempt
from relkit.launch.job.exchange import Mailbox, wait_for_thread
from relkit.launch.job.settings import Log
from relkit.launch.straggler.poll_interval import QUICK_S
from relkit.log_lines import warning
from relkit.process.interruptible_wait import is_set_within
from relkit.straggler.history_types import RaisedVerdict, Standing
from relkit.straggler.transport import control
from relkit.straggler.transport.control_settings import Control

if TYPE_CHECKING:
    from relkit.launch.straggler.straggler_node import StragglerNode

# How long workers that are to be stopped wait for what was seen to be written down.
PAUSE_S = 2.0
_CLOSE_S = 10.0


class Stragglers:
    """Runs beside the launcher: begin() with each attempt, pause() before its workers stop.

    All of the work is done in the thread, so that neither a slow store nor a slow disk holds the
    launcher or its hang detection up.

    Args:
        settings: to begin with; a file in the job's folder may change them later.
        timeline: folder that keeps the evidence.
        log: one line to the terminal.
        min_nodes: fewer must not be left when a node is excluded; may be set anew before begin().
        clock: monotonic seconds.
    """

    def __init__(
        self,
        settings: Control,
        timeline: Path,
        log: Log,
        *,
        min_nodes: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings, self._timeline, self._log = settings, timeline, log
        self.min_nodes, self._clock = min_nodes, clock
        self._past: tuple[RaisedVerdict, ...] = ()
        # What the launcher wants, in order: an attempt to watch, or an event to set when none is
        # watched any more.
        self._wanted: deque[tuple[Attempt, Mailbox] | threading.Event] = deque()
        self._wake = threading.Event()
        self._closing = False
        self._first = True
        self._node: StragglerNode | None = None
        self._mailbox: Mailbox | None = None
        self._complained = ""
        self._thread = threading.Thread(target=self._run, name="relkit-stragglers", daemon=True)

    def forget_earlier_job(self, job_dir: Path | None, node: int) -> None:
        """Drop the settings that an earlier job by the same name was asked for.

        Call it before the workers start, not once the job is said to be watched: from then on,
        users ask for settings of this job.

        Args:
            job_dir: the job's folder; None where there is none.
            node: number of this node, of which 0 owns the settings.
        """
        if self._first and job_dir is not None and node == 0:
            with contextlib.suppress(OSError):
                (job_dir / control.FILE).unlink(missing_ok=True)
        self._first = False

    def begin(self, attempt: Attempt, mailbox: Mailbox) -> None:
        """Watch a new attempt.

        Args:
            mailbox: to the other nodes, for the thread alone.
        """
        if attempt.job_dir is None or self._closing:
            return
        self._mailbox = mailbox
        self._wanted.append((attempt, mailbox))
        self._wake.set()
        if not self._thread.is_alive():
            with contextlib.suppress(RuntimeError):
                self._thread.start()

    def pause(self, timeout_s: float = PAUSE_S) -> None:
        """The workers are about to be stopped: what was seen is written down.

        Args:
            timeout_s: no longer than that, s.
        """
        if not self._thread.is_alive():
            return
        done = threading.Event()
        self._wanted.append(done)
        self._wake.set()
        is_set_within(done, timeout_s)

    def leaves(self) -> str:
        """Why this node is to leave the job, "" where it is not."""
        return self._order(mine=True)

    def other_leaves(self) -> str:
        """Why another node is about to leave, "" where none is: workers here lose their peers."""
        return self._order(mine=False)

    @property
    def standing(self) -> Standing | None:
        """Who is slow now; None where that is not known here. Any thread may ask."""
        leader = None if self._node is None else self._node.leader
        return None if leader is None else leader.standing

    def _order(self, *, mine: bool) -> str:
        node = self._node
        if node is None or node.order is None or node.ordered_away is not mine:
            return ""
        return node.order.why

    def close(self) -> None:
        """End the thread; waits for what it is writing."""
        self._closing = True
        self._wake.set()
        if self._thread.is_alive():
            wait_for_thread(self._thread, self._mailbox, _CLOSE_S)

    def _run(self) -> None:
        while True:
            with self._logged_once():
                while self._wanted:
                    if not isinstance(self._wanted[0], threading.Event):
                        # What cannot be loaded now may be later. Not at the top: the workers would
                        # start later for it.
                        import relkit.launch.straggler.straggler_node  # noqa: F401
                    self._take(self._wanted.popleft())
                if self._node is not None and not self._closing:
                    self._node.tick(self._clock())
            if self._closing and not self._wanted:
                break
            self._wait()
        with self._logged_once():
            self._end()

    def _wait(self) -> None:
        node = self._node
        left_s = QUICK_S if node is None else node.interval_s
        while left_s > 0.0 and not self._wake.wait(min(left_s, QUICK_S)):
            left_s -= QUICK_S
            if node is not None and node.is_called:
                break
        self._wake.clear()

    def _take(self, wanted: tuple[Attempt, Mailbox] | threading.Event) -> None:
        if isinstance(wanted, threading.Event):
            try:
                self._end()
            finally:
                wanted.set()
            return
        from relkit.launch.straggler.straggler_node import StragglerNode

        self._end()
        attempt, mailbox = wanted
        job_dir = attempt.job_dir
        assert job_dir is not None
        self._node = StragglerNode(
            attempt, mailbox, job_dir, self._settings, self._timeline, self._log,
            min_nodes=self.min_nodes, past=self._past,
        )  # fmt: skip

    def _end(self) -> None:
        node, self._node = self._node, None
        if node is None:
            return
        self._settings = node.settings
        try:
            node.close(self._clock())
        finally:
            self._past = node.past

    @contextlib.contextmanager
    def _logged_once(self) -> Iterator[None]:
        # A problem of the detection must not end the job.
        try:
            yield
        except (RelkitError, OSError, ImportError) as error:
            if str(error) != self._complained:
                self._complained = str(error)
                self._log(warning(f"straggler detection hit a problem: {error}"))
