"""The time that a line begins with, so far as times of several logs can be compared; pure."""

from __future__ import annotations

import re
from datetime import datetime, timezone

from relkit.why.model import Clock

_ISO = re.compile(
    r"(20\d\d)[-/](\d\d)[-/](\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?"
    r"(?: ?(Z|[+-]\d\d:?\d\d)(?![\d:]))?",
    re.ASCII,
)
# glog's, torch's C++: `E1128 22:16:47.123456`, `[E626 06:24:44.903881913`.
_GLOG = re.compile(
    r"(?<![A-Za-z0-9])[EWIF](\d{1,2})(\d\d) (\d\d):(\d\d):(\d\d)\.(\d{1,9})", re.ASCII
)
# syslog and dmesg -T: `Nov 28 22:16:47`, `[Sat Nov 28 22:16:47 2026]`.
_SYSLOG = re.compile(
    r"\b(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) {1,2}(\d{1,2}) (\d\d):(\d\d):(\d\d)",
    re.ASCII,
)
_MONTHS = "JanFebMarAprMayJunJulAugSepOctNovDec"
_HEAD = 240
# A leap year: some of the formats name none.
_YEAR = 2000
_START = datetime(_YEAR, 1, 1, tzinfo=timezone.utc)


def clock_of(line: str) -> Clock | None:
    """When a line was written; None where it does not say.

    Args:
        line: with its prefixes.
    """
    head = line[:_HEAD]
    if (iso := _ISO.search(head)) is not None:
        zone = iso[8] or ""
        clock = _clock("utc" if zone else "local", *map(int, iso.groups()[1:6]), part=iso[7])
        return clock if clock is None or zone in ("", "Z") else _in_utc(clock, zone)
    if (glog := _GLOG.search(head)) is not None:
        return _clock("local", *map(int, glog.groups()[:5]), part=glog[6])
    if (system := _SYSLOG.search(head)) is not None:
        month = _MONTHS.index(system[1]) // 3 + 1
        return _clock("local", month, *map(int, system.groups()[1:]), part=None)
    return None


def clock_of_unix(text: str) -> Clock | None:
    """A Unix time in seconds, to be compared with those of logs; None where it is none."""
    try:
        when = datetime.fromtimestamp(float(text), timezone.utc)
    except (ValueError, OverflowError, OSError):
        return None
    return Clock("utc", (when.replace(year=_YEAR) - _START).total_seconds())


def _clock(
    kind: str, month: int, day: int, hour: int, minute: int, second: int, *, part: str | None
) -> Clock | None:
    try:
        when = datetime(_YEAR, month, day, hour, minute, min(second, 59), tzinfo=timezone.utc)
    except ValueError:
        return None
    part_s = float(f"0.{part}") if part else 0.0
    return Clock(kind, (when - _START).total_seconds() + part_s)


def _in_utc(clock: Clock, zone: str) -> Clock:
    sign = -1 if zone[0] == "+" else 1
    hours, minutes = int(zone[1:3]), int(zone[-2:])
    return Clock(clock.kind, clock.at_s + sign * (hours * 3600 + minutes * 60))
