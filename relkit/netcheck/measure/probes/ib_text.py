"""The tables that perftest's ib_write_bw and ib_write_lat print.

The columns follow perftest's sources (perftest_resources.c, RESULT_FMT and similar): the row of
numbers follows the line that starts with "#bytes".
"""

from __future__ import annotations

from dataclasses import dataclass

_MIB_BITS = (1 << 20) * 8


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """Of ib_write_bw: message size, and the average in Gbit/s."""

    size_bytes: int
    gbps: float


@dataclass(frozen=True, slots=True)
class Latency:
    """Of ib_write_lat: round trips, us. perftest prints half of each."""

    p50_us: float
    p99_us: float


def read_bandwidth(text: str) -> Bandwidth:
    """The average of an ib_write_bw run. Raises ValueError if there is none."""
    header, row = _table(text)
    if len(row) < 4:
        raise ValueError(f"ib_write_bw printed {len(row)} columns, expected at least four")
    # Without --report_gbits the unit is called MB/sec or MiB/sec, and is 2**20 bytes in both.
    scale = 1.0 if "Gb/sec" in header else _MIB_BITS / 1e9
    return Bandwidth(int(row[0]), row[3] * scale)


def read_latency(text: str) -> Latency:
    """Median and 99th percentile of an ib_write_lat run. Raises ValueError if there is none."""
    header, row = _table(text)
    if "t_typical" not in header or "99%" not in header or len(row) < 8:
        raise ValueError("ib_write_lat printed no percentiles (was it run with -D?)")
    return Latency(2 * row[4], 2 * row[7])


def _table(text: str) -> tuple[str, list[float]]:
    header = ""
    for line in text.splitlines():
        if line.strip().startswith("#bytes"):
            header = line
        elif header and line.strip():
            return header, [float(word) for word in line.split()]
    raise ValueError(_complaint(text))


def _complaint(text: str) -> str:
    """An error with the last line that is not blank or a rule."""
    lines = [line.strip() for line in text.splitlines() if line.strip(" -\t")]
    return f"no results: {lines[-1]}" if lines else "no output"
