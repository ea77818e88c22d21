"""What `pystack remote` and `pystack core` print -> the stacks of processes; pure.

Source: Bloomberg's pystack, src/pystack/traceback_formatter.py, 1.0 to 1.5.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from relkit.flight_recorder.spy_text import (
    MAX_FRAMES,
    MAX_PROCESSES,
    MAX_THREADS,
    SpyProcess,
    rank_mark,
)
from relkit.stacks.model import Frame, Role, ThreadStack
from relkit.stacks.roles import role_of_frames, role_of_name

SIGN = b"Traceback for thread "
_MAX_LINE = 4096
_THREAD = re.compile(
    r"Traceback for thread (\d{1,10})(?: \((.{0,64}?)\))? \[(.{0,120}?)\] "
    r"\(most recent call last\)",
    re.ASCII,
)
_FRAME = re.compile(
    r" {4}\((Python|C|C\+\+)\) File \"(.{1,1024})\", line (\d{1,9}), in (.{1,2048}?)"
    r"(?: \((\S{1,1024})\))?\s*$"
)
_OUTERMOST = frozenset(("<module>", "_run_module_as_main", "_start", "main"))
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(slots=True)
class _Thread:
    number: int
    name: str
    owns_gil: bool
    python: list[Frame] = field(default_factory=list)
    native: list[Frame] = field(default_factory=list)

    @property
    def is_main(self) -> bool:
        """It runs the program itself, and was not started by it."""
        begins = {frames[0].func for frames in (self.python, self.native) if frames}
        return bool(begins & _OUTERMOST)


def parse_pystack_text(lines: Iterable[str]) -> list[SpyProcess]:
    """The processes of a text, in its order; empty where it is not pystack's.

    Nothing in it tells where one process ends: another main thread begins the next one, and so
    does the mark of another rank.

    Args:
        lines: of the text.
    """
    processes: list[tuple[int | None, list[_Thread]]] = []
    rank: int | None = None
    is_open = False
    for text in lines:
        marked, line = rank_mark(_ANSI.sub("", text[:_MAX_LINE]).rstrip("\r\n"))
        if marked is not None and marked != rank:
            rank, is_open = marked, False
        thread = _THREAD.match(line)
        if thread is not None:
            if not is_open:
                if len(processes) == MAX_PROCESSES:
                    break
                processes.append((rank, []))
                is_open = True
            threads = processes[-1][1]
            if len(threads) < MAX_THREADS:
                gil = "Has the GIL" in thread[3]
                threads.append(_Thread(int(thread[1]), thread[2] or "", gil))
        elif is_open and (frame := _FRAME.match(line)) is not None and processes[-1][1]:
            _add(processes[-1][1][-1], frame)
    return [
        _finished(rank, own) for rank, threads in processes for own in _by_process(threads) if own
    ]


def _by_process(threads: Sequence[_Thread]) -> list[list[_Thread]]:
    """The threads of each process: its main one is printed first."""
    made: list[list[_Thread]] = [[]]
    for each in threads:
        is_again = any(each.number == known.number for known in made[-1])
        if is_again or (each.is_main and any(known.is_main for known in made[-1])):
            made.append([])
        made[-1].append(each)
    # A process that was looked at twice: the last time counts.
    newest = {own[0].number: own for own in made if own}
    return list(newest.values())


def _add(thread: _Thread, frame: re.Match[str]) -> None:
    if len(thread.python) + len(thread.native) >= MAX_FRAMES:
        return
    if frame[1] == "Python":
        # A function's name may end in brackets of its own: of Python there is no library.
        name = frame[4] if frame[5] is None else f"{frame[4]} ({frame[5]})"
        thread.python.append(Frame(name, f"{frame[2]}:{frame[3]}"))
    else:
        thread.native.append(Frame(frame[4], frame[5] or frame[2]))


def _finished(rank: int | None, threads: list[_Thread]) -> SpyProcess:
    # The main thread has the number of the process.
    pid = next((t.number for t in threads if t.is_main), min(t.number for t in threads))
    python, native = [], []
    for each in threads:
        frames = tuple(reversed(each.python))
        is_main = each.number == pid
        role = Role.MAIN if is_main else role_of_name(each.name) or role_of_frames(frames)
        role = Role.OTHER if role is Role.MAIN and not is_main else role
        name = "MainThread" if is_main else each.name
        stack = ThreadStack(each.number, name, frames, role, owns_gil=each.owns_gil)
        python.append(stack)
        if each.native:
            native.append(replace(stack, frames=tuple(reversed(each.native))))
    return SpyProcess(pid, rank, tuple(python), tuple(native), "pystack")
