"""What Python's faulthandler prints -> the stacks of a process; pure.

Source: CPython's Python/traceback.c, 3.8 to 3.14: dump_traceback, dump_traceback_later and the dump
of a fatal error. The thread that was started first, mostly the main one, comes last.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from relkit.flight_recorder.spy_text import SpyProcess
from relkit.stacks.model import Frame, Role, ThreadStack
from relkit.stacks.roles import role_of_frames

SIGN = b"most recent call first"
_MAX_THREADS = 4096
_MAX_FRAMES = 2048
_MAX_RANKS = 4096
_MAX_LINE = 4096
_RANK = re.compile(r"^\s*\[rank(\d{1,7})\]:? ?", re.ASCII)
_LOCAL = re.compile(r"^\s*\[[\w-]{1,32}\]:? ")
_THREAD = re.compile(
    r"(?P<current>Current thread|Thread) 0x(?P<id>[0-9a-fA-F]{1,16})(?: \[(?P<name>.{0,64})\])? "
    r"\(most recent call first\):",
    re.ASCII,
)
_STACK = re.compile(r"Stack \(most recent call first\):")
_FRAME = re.compile(r'  File "(.{1,1024})", line (\d{1,9}|\?\?\?) in (.{1,1024})')
_BEGINS = re.compile(r"Timeout \(\d|Fatal Python error: ")


@dataclass(slots=True)
class _Thread:
    number: int
    name: str
    frames: list[Frame] = field(default_factory=list)


def parse_fault_text(lines: Iterable[str]) -> list[SpyProcess]:
    """The processes of a text: one without a rank, or those of the ranks that its lines name.

    Where a process was dumped several times, the last one counts.

    Args:
        lines: of the text.
    """
    dumps: dict[int | None, list[_Thread]] = {}
    for text in lines:
        line = text[:_MAX_LINE].rstrip("\r\n")
        mark = _RANK.match(line)
        rank = None if mark is None else int(mark[1])
        line = line[mark.end() :] if mark else line
        threads = dumps.setdefault(rank, []) if len(dumps) < _MAX_RANKS or rank in dumps else []
        _add(threads, line if line.startswith("  File") else _LOCAL.sub("", line))
    return [
        _finished(rank, threads)
        for rank, threads in dumps.items()
        if any(each.frames for each in threads)
    ]


def _add(threads: list[_Thread], line: str) -> None:
    thread = _THREAD.search(line) or _STACK.search(line)
    if thread is not None:
        parts = thread.groupdict()
        number = int(parts.get("id") or "0", 16)
        if any(each.number == number for each in threads) or len(threads) == _MAX_THREADS:
            threads.clear()
        threads.append(_Thread(number, parts.get("name") or ""))
    elif _BEGINS.match(line):
        threads.clear()
    elif (frame := _FRAME.match(line)) is not None and threads:
        source = frame[1] if frame[2] == "???" else f"{frame[1]}:{frame[2]}"
        if len(threads[-1].frames) < _MAX_FRAMES:
            threads[-1].frames.append(Frame(frame[3], source))


def _finished(rank: int | None, threads: list[_Thread]) -> SpyProcess:
    stacks = [
        ThreadStack(0, each.name, tuple(each.frames), role_of_frames(tuple(each.frames)),
                    thread_id=each.number)
        for each in threads
    ]  # fmt: skip
    stacks[-1] = replace(stacks[-1], name=stacks[-1].name or "MainThread", role=Role.MAIN)
    others = (replace(s, role=Role.OTHER) if s.role is Role.MAIN else s for s in stacks[:-1])
    return SpyProcess(0, rank, (*others, stacks[-1]), (), "faulthandler")
