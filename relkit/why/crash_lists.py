"""What coredumpctl and `ls -l core*` print -> which processes crashed, and how; pure."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from relkit.text.printable import printable_line
from relkit.why.clocks import clock_of
from relkit.why.model import Clock, Sighting, Speaker
from relkit.why.rules.exit_codes import cause_of_signal
from relkit.why.rules.told import Kind

_MAX_TEXT = 400
_MAX_LINE = 4096
_MAX_HEAD = 400
_LIST_HEAD = re.compile(r"^TIME +PID +UID +GID +SIG +COREFILE +EXE\b")
# `Sat 2026-11-28 22:00:01 UTC  4711 1000 1000 SIGSEGV present /usr/bin/python3.11 12.3M`
_ROW = re.compile(
    r"^\w{3} \d{4}-\d\d-\d\d \d\d:\d\d:\d\d \S{1,8} +(?P<pid>\d{1,9}) +\d+ +\d+ +"
    r"(?P<signal>SIG[A-Z]+|\d{1,3}) +\S+ +(?P<exe>/.*)$",
    re.ASCII,
)
_INFO_PID = re.compile(r"^ *PID: (\d{1,9}) \((.{1,64})\)")
_INFO_SIGNAL = re.compile(r"^ *Signal: (\d{1,3})\b")
_INFO_TIME = re.compile(r"^ *Timestamp: \S+ (\d.*)$")
_INFO_HOST = re.compile(r"^ *Hostname: ([\w.-]{1,253})$")
# The first frame that has a name.
_INFO_FRAME = re.compile(r"^ *#\d+ +0x[0-9a-f]+ (?!n/a)(\S+) \((.{1,200})\)")
_LS = re.compile(
    r"^-[rwxsStT-]{9}[.+@]? +\d+ +\S+ +\S+ +[\d.,]+[KMGT]? +(?P<when>\S.{4,40}?) "
    r"(?P<file>(?:\S*/)?core(?P<rest>[._-]\S*)?)$"
)


def is_crash_list(lines: Sequence[str]) -> bool:
    """Whether a text is a list of crashes, or of the files that they left."""
    head = [line for line in lines[:_MAX_HEAD] if line.strip()]
    if any(_LIST_HEAD.match(line) for line in head[:5]):
        return True
    if any(_INFO_PID.match(line) for line in head) and any(map(_INFO_SIGNAL.match, head)):
        return True
    listed = sum(_LS.match(line) is not None for line in head)
    return listed > 0 and 2 * listed >= len(head)


def read_crashes(lines: Sequence[str], path: Path) -> Iterator[Sighting]:
    """The crashes of a list, each with the process that it was of."""
    info = _Entry(0, "", 0)
    for number, whole in enumerate(lines, start=1):
        line = whole[:_MAX_LINE].rstrip()
        if (row := _ROW.match(line)) is not None:
            cause, kind = _cause_of(_signal(row["signal"]))
            yield _sighting(cause, kind, line, path, number, int(row["pid"]), clock_of(line))
        elif (listed := _LS.match(line)) is not None:
            pid = _pid_of(listed["rest"] or "")
            yield _sighting("segfault", Kind.WEAK, line, path, number, pid, clock_of(line))
        elif (process := _INFO_PID.match(line)) is not None:
            yield from info.sightings(path)
            info = _Entry(int(process[1]), process[2], number)
        else:
            info.add(line)
    yield from info.sightings(path)


@dataclass(slots=True)
class _Entry:
    """One entry of `coredumpctl info`.

    Args:
        pid: of the process, 0 for what stands before the first entry; name: of its program.
        line: of the file, in which it begins.
    """

    pid: int
    name: str
    line: int
    signal: int = 0
    host: str = ""
    frame: str = ""
    clock: Clock | None = None

    def add(self, line: str) -> None:
        """Take a line of it."""
        if (number := _INFO_SIGNAL.match(line)) is not None:
            self.signal = int(number[1])
        elif (time := _INFO_TIME.match(line)) is not None:
            self.clock = clock_of(time[1])
        elif (host := _INFO_HOST.match(line)) is not None:
            self.host = host[1]
        elif not self.frame and (frame := _INFO_FRAME.match(line)) is not None:
            self.frame = f"{frame[1]} ({frame[2]})"

    def sightings(self, path: Path) -> Iterator[Sighting]:
        """What it says, if there is a process in it."""
        if not self.pid:
            return
        text = f"process {self.pid} ({self.name}) dumped core, signal {self.signal}"
        text += f", in {self.frame}" if self.frame else ""
        cause, kind = _cause_of(self.signal)
        made = _sighting(cause, kind, text, path, self.line, self.pid, self.clock)
        yield replace(made, speaker=Speaker(host=self.host))


def _cause_of(number: int) -> tuple[str, Kind]:
    """Of a signal, and how much it says: who sent SIGQUIT or the like is not told."""
    cause = cause_of_signal(number)
    return (cause, Kind.ROOT) if cause else ("killed", Kind.WEAK)


def _signal(word: str) -> int:
    """By its name or its number; 0 for none."""
    return signal.Signals[word] if word in signal.Signals.__members__ else _number(word)


def _pid_of(rest: str) -> int:
    """The process by the name of a core file; 0 where that may be something else.

    Args:
        rest: of the name behind `core`.
    """
    parts = [part for part in re.split(r"[._-]", rest) if part]
    numbers = [part for part in parts if part.isdecimal()]
    if len(numbers) == 1:
        return _number(numbers[0])
    # systemd's: core.python3.1000.<boot>.<pid>.<time>.zst
    systemd = re.search(r"\.\d+\.[0-9a-f]{32}\.(\d{1,9})\.\d{10,20}", rest, re.ASCII)
    return _number(systemd[1]) if systemd else 0


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0


def _sighting(
    cause: str, kind: Kind, line: str, path: Path, number: int, pid: int, clock: Clock | None
) -> Sighting:
    text = printable_line(" ".join(line.split()))[:_MAX_TEXT]
    return Sighting(cause, kind, text, path, number, clock=clock, pid=pid)
