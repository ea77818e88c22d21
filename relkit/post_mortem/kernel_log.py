"""The kernel's log: /dev/kmsg, or syslog(2) where that device is missing or may not be opened.

Times are the log's own (microseconds since boot by its clock), and are compared with each other
only: that clock goes wrong by seconds in a long uptime, and by hours over a snapshot.
"""

from __future__ import annotations

import ctypes
import os
import re
import time
from dataclasses import dataclass

from relkit.post_mortem.model import safe_line
from relkit.text.whole_number import whole_number

_DEVICE = "/dev/kmsg"
_RECORD_BYTES = 1 << 13
_MAX_RECORDS = 100_000
# A busy kernel may write as fast as we read.
_DEADLINE_S = 0.5
_SYSLOG_ACTION_READ_ALL = 3
_SYSLOG_BYTES = 1 << 22
_SYSLOG_LINE = re.compile(r"(?:<\d{1,4}>)?\[\s*(\d{1,12})\.(\d{6})\]\s?(.*)", re.ASCII)

Timed = tuple[int, str]
"""Microseconds of the log's clock, and one line that is safe to print."""


@dataclass(frozen=True, slots=True)
class KernelLog:
    """What stands in the kernel log.

    Args:
        lines: oldest first.
        problem: why it could not be read; "" where it could.
    """

    lines: tuple[Timed, ...] = ()
    problem: str = ""

    @property
    def newest_us(self) -> int:
        """The time of its newest line; 0 where it has none."""
        return max((time_us for time_us, _ in self.lines), default=0)

    def after(self, time_us: int) -> tuple[str, ...]:
        """The lines that are newer."""
        return tuple(text for at_us, text in self.lines if at_us > time_us)


def read_kernel_log() -> KernelLog:
    """All that the kernel still has of its log."""
    try:
        descriptor = os.open(_DEVICE, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        return _by_system_call(f"{_DEVICE}: {error.strerror}")
    try:
        lines = _records(descriptor)
    except OSError as error:
        return _by_system_call(f"{_DEVICE}: {error.strerror}")
    finally:
        os.close(descriptor)
    if lines is None:
        return KernelLog(problem=f"{_DEVICE} was not at its end after {_DEADLINE_S:g} s")
    return KernelLog(tuple(lines))


def _records(descriptor: int) -> list[Timed] | None:
    """All of them; None where there was no end in time: the newest would be missing."""
    end_s = time.monotonic() + _DEADLINE_S
    lines: list[Timed] = []
    for _ in range(_MAX_RECORDS):
        if time.monotonic() >= end_s:
            return None
        try:
            record = os.read(descriptor, _RECORD_BYTES)
        except BlockingIOError:
            return lines
        except BrokenPipeError:
            # Overwritten while we read; the next read goes on with the oldest that is left.
            continue
        line = parse_record(record)
        if line is not None:
            lines.append(line)
        if not record:
            return lines
    return None


def parse_record(record: bytes) -> Timed | None:
    """One record of /dev/kmsg; None for what is none.

    Format: "priority,number,microseconds,flags[,...];text\\n key=value\\n"
    (Documentation/ABI/testing/dev-kmsg of the kernel).
    """
    head, _, rest = record.decode("utf-8", "replace").partition(";")
    fields = head.split(",")
    time_us = whole_number(fields[2]) if len(fields) > 2 else None
    return None if time_us is None else (time_us, safe_line(rest.split("\n", 1)[0]))


def parse_syslog(text: str) -> tuple[Timed, ...]:
    """The lines of syslog(2), which dmesg prints: "<6>[  604.112935] text"."""
    matches = (_SYSLOG_LINE.match(line) for line in text.splitlines()[-_MAX_RECORDS:])
    return tuple(
        (int(match[1]) * 1_000_000 + int(match[2]), safe_line(match[3]))
        for match in matches
        if match
    )


def _by_system_call(why: str) -> KernelLog:
    try:
        call = ctypes.CDLL(None, use_errno=True).klogctl
    except (AttributeError, OSError):
        return KernelLog(problem=why)
    buffer = ctypes.create_string_buffer(_SYSLOG_BYTES)
    length = call(_SYSLOG_ACTION_READ_ALL, buffer, _SYSLOG_BYTES)
    if length < 0:
        return KernelLog(problem=why)
    return KernelLog(parse_syslog(buffer.raw[:length].decode("utf-8", "replace")))
