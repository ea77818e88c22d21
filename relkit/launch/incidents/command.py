"""Runs the site's command for an incident: beside the job, one at a time, with a deadline."""

from __future__ import annotations

import math
import os
import threading
import time
from collections import deque
from collections.abc import Sequence

from relkit.launch.incidents.incident import Incident
from relkit.launch.job.settings import Log
from relkit.log_lines import warning
from relkit.process.bounded_child import ChildResult, memory_file, run_child
from relkit.process.interruptible_wait import is_set_within

TIMEOUT_S = 30.0
# Those that may wait for the one that is being told. Jobs that fail faster than somebody can be
# told of it fail for one reason.
MAX_WAITING = 8
# On top of a command's own deadline: until it is killed and reaped.
_MARGIN_S = 2.0
_MAX_WORDS = 300
# Where its last line is looked for.
_LAST_CHARACTERS = 4096


class IncidentCommand:
    """No call waits or raises, but close(): the command runs in a thread and a session of its own.

    Args:
        words: of the command; no shell sees them.
        log: writes one line to the terminal.
        timeout_s: the command is killed after that, s.
    """

    def __init__(self, words: Sequence[str], log: Log, timeout_s: float = TIMEOUT_S) -> None:
        self._words, self._log, self._timeout_s = tuple(words), log, timeout_s
        # As it is now: while workers are started, this process has their variables for a moment.
        self._environment = dict(os.environ)
        self._waiting: deque[Incident] = deque()
        self._ends_s = math.inf
        self._lock = threading.Lock()
        # Set: no thread runs.
        self._idle = threading.Event()
        self._idle.set()
        self._said: set[str] = set()

    def tell(self, incident: Incident) -> None:
        """Have the command run for an incident, after those that wait already."""
        with self._lock:
            if len(self._waiting) >= MAX_WAITING:
                self._say(f"{MAX_WAITING} incidents wait for it; a further one is not told")
                return
            self._waiting.append(incident)
            if not self._idle.is_set():
                return
            self._idle.clear()
        thread = threading.Thread(target=self._run, name="relkit-incidents", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            self._idle.set()
            self._say(f"no thread to run it in: {error}")

    def close(self) -> None:
        """Wait for what is being told, no longer than one command may take."""
        with self._lock:
            self._ends_s = time.monotonic() + self._timeout_s
        is_set_within(self._idle, self._timeout_s + _MARGIN_S)

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._idle.set()
                    return
                incident, left_s = self._waiting.popleft(), self._ends_s - time.monotonic()
            if left_s <= 0.0:
                self._say("the launcher ends before it could be told of all incidents")
                continue
            self._run_once(incident, min(self._timeout_s, left_s))

    def _run_once(self, incident: Incident, timeout_s: float) -> None:
        stdin = -1
        try:
            stdin = memory_file()
            os.pwrite(stdin, incident.to_line(), 0)
            done = run_child(
                self._words,
                timeout_s,
                add_environment=incident.variables(),
                environment=self._environment,
                stdin=stdin,
            )
        except Exception as error:  # noqa: BLE001 (a thread that ends here would hold up close())
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            self._say(f"cannot run {self._words[0]!r}: {reason}")
            return
        finally:
            if stdin >= 0:
                os.close(stdin)
        if done.timed_out or done.flooded or done.returncode != 0:
            self._say(_how_it_ended(self._words[0], done, timeout_s))
        else:
            self._log(f"--on-incident: {self._words[0]} was told of the {incident.kind}")

    def _say(self, text: str) -> None:
        """A failure is said once, however often it comes."""
        if text not in self._said:
            self._said.add(text)
            self._log(warning(f"--on-incident: {text}", "incident-command"))


def _how_it_ended(name: str, done: ChildResult, timeout_s: float) -> str:
    last = (done.stderr[-_LAST_CHARACTERS:].strip().splitlines() or [""])[-1][:_MAX_WORDS]
    last = f": {last}" if last else ""
    if done.timed_out:
        return f"{name} took longer than {timeout_s:.0f} s and was ended{last}"
    if done.flooded:
        return f"{name} printed without end and was ended{last}"
    if done.returncode < 0:
        return f"{name} was ended by signal {-done.returncode}{last}"
    return f"{name} ended with code {done.returncode}{last}"
