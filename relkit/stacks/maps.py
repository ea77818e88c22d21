"""Which file of a process an address belongs to: /proc/PID/maps, read with a deadline."""

from __future__ import annotations

import bisect
from dataclasses import dataclass

from relkit.process.procfs import read_within

ObjectKey = tuple[str, int, str]
"""(device, inode, path) as the kernel names a mapped file: the same on every rank of a host."""


@dataclass(frozen=True, slots=True)
class Mapping:
    """One executable mapping.

    Args:
        start, end: addresses in the process.
        offset: where in the file `start` is.
        key: the file.
    """

    start: int
    end: int
    offset: int
    key: ObjectKey

    @property
    def path(self) -> str:
        """The file as the process sees it, "" for anonymous memory."""
        return self.key[2]


def parse_maps(text: str) -> tuple[Mapping, ...]:
    """The executable mappings of a maps file, by address; malformed lines are left out."""
    mappings = []
    for line in text.splitlines():
        words = line.split(maxsplit=5)
        if len(words) < 5 or "x" not in words[1]:
            continue
        try:
            low, high = (int(part, 16) for part in words[0].split("-"))
            key = (words[3], int(words[4]), words[5] if len(words) > 5 else "")
            mappings.append(Mapping(low, high, int(words[2], 16), key))
        except ValueError:
            continue
    return tuple(sorted(mappings, key=lambda mapping: mapping.start))


def read_maps(pid: int, timeout_s: float) -> tuple[Mapping, ...]:
    """The process's executable mappings; empty where it is gone, or does not answer in time."""
    raw = read_within(f"/proc/{pid}/maps", timeout_s)
    return parse_maps(raw.decode("utf-8", "replace")) if raw else ()


def mapping_of(mappings: tuple[Mapping, ...], address: int) -> Mapping | None:
    """The mapping that holds the address (mappings sorted by start)."""
    at = bisect.bisect_right(mappings, address, key=lambda mapping: mapping.start) - 1
    return mappings[at] if at >= 0 and address < mappings[at].end else None
