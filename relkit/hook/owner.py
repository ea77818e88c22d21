"""Whose a recorder is: its process by the number that it has here, or nobody that is seen."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from relkit.errors import BadDump
from relkit.hook.model import HookState
from relkit.hook.reader import name_of, state_files
from relkit.hook.state_file import StateFile, open_state_file
from relkit.process import procfs
from relkit.process.identity import ProcessFinder, ProcessIdentity, own_identity


def located(state: HookState, finder: ProcessFinder) -> HookState | None:
    """The state with the number by which its process is known here.

    Args:
        state: as its process has recorded it.
        finder: of whoever looks.

    Returns:
        None where that cannot be known, as a process of that number here is another one; and where
        its clock is not this one, in a time namespace.
    """
    recorded = ProcessIdentity(state.pid, state.start_ticks, state.pid_namespace)
    number = finder.number_of(recorded)
    if number is None or procfs.has_own_clock(number):
        return None
    return replace(state, pid=number)


class Owners:
    """Whose the recorders of a folder are, one look after the other.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._finder = ProcessFinder(clock)
        self._strange: set[int] = set()

    def look_again(self) -> None:
        """A new look begins."""
        self._strange.clear()

    def located(self, state: HookState) -> HookState | None:
        """As the function of this name."""
        here = located(state, self._finder)
        if here is None:
            self._strange.add(state.rank)
        return here

    @property
    def strange(self) -> frozenset[int]:
        """Ranks with a recorder of a process that cannot be told from others here."""
        return frozenset(self._strange)


def writer_lives(recorder: Path, finder: ProcessFinder) -> bool:
    """Whether the process that records into this file can be seen to run."""
    try:
        with open_state_file(recorder) as file:
            recorded = _recorded(file)
    except (BadDump, OSError):
        # It has only just been made.
        pid, namespace = name_of(recorder) or (0, 0)
        return bool(pid and not namespace) and procfs.is_same_process(pid, 0)
    number = finder.number_of(recorded)
    return number is not None and procfs.is_same_process(number, recorded.start_ticks)


def recorder_of_self(job_dir: Path) -> Path | None:
    """The file into which this process records; None where there is none."""
    me = own_identity()
    for path in state_files(job_dir):
        if (name_of(path) or (0, 0))[0] != me.pid:
            continue
        with suppress(BadDump), open_state_file(path) as file:
            if _recorded(file) == me:
                return path
    return None


def _recorded(file: StateFile) -> ProcessIdentity:
    header = file.header
    ticks, namespace = int(header["start_ticks"]), int(header["pid_namespace"])
    return ProcessIdentity(int(header["pid"]), ticks, namespace)


def is_recorded(job_dir: Path) -> bool:
    """Whether a process that still runs records into a job's folder."""
    finder = ProcessFinder()
    return any(writer_lives(path, finder) for path in job_dir.glob("*.rkhook"))
