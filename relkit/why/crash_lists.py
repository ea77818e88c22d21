"""What coredumpctl and `ls -l core*` print -> which processes crashed, and how; pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
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
_SIGNALS = {
    "SIGILL": 4, "SIGTRAP": 5, "SIGABRT": 6, "SIGBUS": 7, "SIGFPE": 8, "SIGKILL": 9, "SIGSEGV": 11,
    "SIGSYS": 31,
}  # fmt: skip


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
    info = _Info(path)
    for number, whole in enumerate(lines, start=1):
        line = whole[:_MAX_LINE].rstrip()
        if (row := _ROW.match(line)) is not None:
            signal = _SIGNALS.get(row["signal"]) or _number(row["signal"])
            cause = cause_of_signal(signal) or "segfault"
            yield _sighting(cause, Kind.ROOT, line, path, number, int(row["pid"]), clock_of(line))
        elif (listed := _LS.match(line)) is not None:
            pid = _pid_of(listed["rest"] or "")
            yield _sighting("segfault", Kind.WEAK, line, path, number, pid, clock_of(line))
        else:
            yield from info.line(line, number)
    yield from info.finished()


class _Info:
    """One entry of `coredumpctl info` after the other."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pid, self._line, self._name = 0, 0, ""
        self._signal, self._host, self._frame = 0, "", ""
        self._clock: Clock | None = None

    def line(self, line: str, number: int) -> Iterator[Sighting]:
        """Read one; what came before an entry's first line is its predecessor's."""
        if (process := _INFO_PID.match(line)) is not None:
            yield from self.finished()
            self.__init__(self._path)  # type: ignore[misc]
            self._pid, self._name, self._line = int(process[1]), process[2], number
        elif (signal := _INFO_SIGNAL.match(line)) is not None:
            self._signal = int(signal[1])
        elif (time := _INFO_TIME.match(line)) is not None:
            self._clock = clock_of(time[1])
        elif (host := _INFO_HOST.match(line)) is not None:
            self._host = host[1]
        elif not self._frame and (frame := _INFO_FRAME.match(line)) is not None:
            self._frame = f"{frame[1]} ({frame[2]})"

    def finished(self) -> Iterator[Sighting]:
        """The entry that was read, if there is one."""
        if not self._pid:
            return
        text = f"process {self._pid} ({self._name}) dumped core, signal {self._signal}"
        text += f", in {self._frame}" if self._frame else ""
        yield Sighting(
            cause=cause_of_signal(self._signal) or "segfault",
            kind=Kind.ROOT,
            text=printable_line(text)[:_MAX_TEXT],
            path=self._path,
            line=self._line,
            speaker=Speaker(host=self._host),
            clock=self._clock,
            pid=self._pid,
        )


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
