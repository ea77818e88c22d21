"""Has the page of an incident drawn beside the job, again when more was done about the incident."""

from __future__ import annotations

import math
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from relkit.commands.shared import page_process
from relkit.errors import RelkitError
from relkit.hang_picture.actions import FILE, MAX_ACTIONS, Action, to_lines
from relkit.launch.job.settings import Log
from relkit.launch.warm_standby.memory import room_now
from relkit.log_lines import warning
from relkit.output import write_atomic
from relkit.process.bounded_child import run_child
from relkit.process.interruptible_wait import is_set_within

# What happens within this time is drawn together.
SETTLE_S = 3.0
# The longest that a launcher waits at its end for a page.
CLOSE_S = 20.0
# After the job is back: a checkpoint may take --flash-timeout until it is on disk.
LATE_S = 660.0
# With less memory than this left to the job, the page is not drawn beside it.
MIN_MEMORY_BYTES = 1 << 30

Shown = Callable[[Sequence[Path]], None]
Draw = Callable[[Path], Sequence[Path]]


class NotDrawn(RelkitError):
    """The page could not be drawn beside the job."""

    next_step = "relkit report FOLDER makes it of what is in the timeline folder."


class IncidentPage:
    """Keeps what relkit does about the newest incident, and has its page drawn with it.

    No call waits, or raises: files are written and the drawing is waited for in a thread.

    Args:
        folder: the timeline folder.
        log: writes one line to the terminal.
        draw: draws into a folder and names the files; may take long.
    """

    def __init__(self, folder: Path, log: Log, draw: Draw | None = None) -> None:
        self._folder, self._log = folder, log
        # As it is now: while workers are started, it has their variables for a moment.
        environment = dict(os.environ)
        self._draw = draw or (lambda path: draw_beside(path, environment))
        self._actions: list[Action] = []
        self._shown: Shown | None = None
        # Until when something may be noted, monotonic clock.
        self._ends_s = -math.inf
        self._lock = threading.Lock()
        self._due, self._idle = threading.Event(), threading.Event()
        self._has_news = self._closing = False
        self._idle.set()
        self._thread: threading.Thread | None = None

    def begin(self, actions: Sequence[Action], shown: Shown) -> None:
        """Draw the page of a new incident, whose evidence is in the folder.

        Args:
            actions: what was done so far.
            shown: gets the files once they are there.
        """
        with self._lock:
            if self._closing:
                return
            self._actions, self._shown, self._ends_s = list(actions), shown, math.inf
            why = self._wake()
        if why:
            self._not_drawn(why, shown)

    @property
    def is_over(self) -> bool:
        """There is no incident, or the job is back after it."""
        return self._ends_s < math.inf

    def note(self, text: str, *, ends_ranks: bool = False, is_last: bool = False) -> None:
        """Note what was done about the incident; without one, nothing.

        Args:
            text: in words.
            ends_ranks: see Action.
            is_last: the job is back; what was begun because of the incident may still end.
        """
        now_s = time.monotonic()
        with self._lock:
            is_bound = now_s > self._ends_s or len(self._actions) >= MAX_ACTIONS
            if is_bound or self._closing:
                return
            self._actions.append(Action(time.time(), text, ends_ranks))
            if is_last:
                self._ends_s = now_s + LATE_S
            self._wake()

    def close(self) -> None:
        """Wait for a page that is being drawn, for a while; none is begun any more."""
        with self._lock:
            self._closing = True
            self._due.set()
        if not is_set_within(self._idle, CLOSE_S):
            self._not_drawn("the launcher ends", self._shown)

    def _wake(self) -> str:
        """Have the thread draw; why it cannot, "" where it can."""
        self._has_news = True
        self._idle.clear()
        self._due.set()
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="relkit-page", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                # The next thing that is noted tries again.
                self._idle.set()
                return _reason(error)
            self._thread = thread
        return ""

    def _run(self) -> None:
        while True:
            self._due.wait()
            with self._lock:
                self._due.clear()
                is_due, self._has_news = self._has_news, False
                actions, shown = tuple(self._actions), self._shown
            if is_due:
                self._draw_once(actions, shown)
            with self._lock:
                if not self._has_news:
                    self._idle.set()
                    if self._closing:
                        return
            self._settle()

    def _settle(self) -> None:
        until_s = time.monotonic() + SETTLE_S
        while not self._closing and self._shown is None and time.monotonic() < until_s:
            time.sleep(0.1)

    def _draw_once(self, actions: Sequence[Action], shown: Shown | None) -> None:
        try:
            write_atomic(self._folder / FILE, to_lines(actions))
            written = self._draw(self._folder)
            if shown is not None and self._is_first(shown):
                shown(written)
        except (RelkitError, OSError, RuntimeError, MemoryError) as error:
            self._not_drawn(_reason(error), shown)

    def _not_drawn(self, why: str, shown: Shown | None) -> None:
        """Say so, unless the files of this incident have been shown."""
        if shown is not None and self._is_first(shown):
            self._log(warning(f"the page of this incident was not drawn: {why}"))
            shown([])

    def _is_first(self, shown: Shown) -> bool:
        """The files are to be shown now: they were not before, nor is there a newer incident."""
        with self._lock:
            is_first = self._shown is shown
            if is_first:
                self._shown = None
        return is_first


def _reason(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[-1][:200]


def draw_beside(folder: Path, environment: dict[str, str]) -> list[Path]:
    """Draw in a child of low priority, with a deadline and a limit on its memory.

    Args:
        folder: the timeline folder.
        environment: of the child.

    Returns:
        the files.

    Raises:
        NotDrawn: it did not succeed, or there is not enough memory to try.
        OSError: it cannot be started.
    """
    room, limit_bytes = room_now(), page_process.MEMORY_BYTES
    if room is not None and room.available_bytes < MIN_MEMORY_BYTES:
        left_mb = room.available_bytes >> 20
        raise NotDrawn(f"{left_mb} MB of memory are available, and they are left to the job")
    if room is not None:
        limit_bytes = min(limit_bytes, room.available_bytes // 2)
    # What is imported is what this process would import, whatever lies in the current folder.
    code = (
        f"import sys; sys.path[:] = {sys.path!r}\nfrom {page_process.__name__} import main; main()"
    )
    argv = [sys.executable, "-c", code, str(folder), str(limit_bytes)]
    done = run_child(argv, page_process.DEADLINE_S, environment=environment)
    if done.returncode != 0:
        after = f"it took longer than {page_process.DEADLINE_S} s" if done.timed_out else ""
        raise NotDrawn(after or done.stderr.strip() or f"exit code {done.returncode}")
    return [Path(os.fsdecode(line)) for line in done.stdout.splitlines() if line]
