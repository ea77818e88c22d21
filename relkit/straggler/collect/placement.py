"""How the kernel treats the ranks of a node: nice levels and cores, where they are not alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from relkit.ranks import RankSet

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Placement:
    """Where and how readily a process may run.

    Args:
        nice: -20 (first) .. 19 (last); cores: that it may run on, as the kernel folds them.
    """

    nice: int
    cores: str


def placement(pid: int, proc: Path = _PROC) -> Placement | None:
    """Of one process; None where it is gone."""
    try:
        stat = (proc / str(pid) / "stat").read_text(errors="replace")
        nice = int(stat.rpartition(")")[2].split()[16])
        status = (proc / str(pid) / "status").read_text(errors="replace")
    except (OSError, ValueError, IndexError):
        return None
    cores = [ln.partition(":")[2].strip() for ln in status.splitlines() if "Cpus_allowed_l" in ln]
    return Placement(nice, cores[0] if cores else "")


def unlike(ranks: Mapping[int, Placement]) -> tuple[str, ...]:
    """What is not the same for all ranks of a node, one sentence each.

    Args:
        ranks: placement by rank.
    """
    notes = []
    levels = Counter(place.nice for place in ranks.values())
    if len(levels) > 1:
        usual = min(levels, key=lambda level: (-levels[level], level))
        for level in sorted(levels.keys() - {usual}):
            odd = RankSet.of(rank for rank, place in ranks.items() if place.nice == level)
            notes.append(f"rank {odd.fold()} runs at nice level {level}, others here at {usual}")
    pinned: dict[str, list[int]] = {}
    for rank, place in ranks.items():
        pinned.setdefault(place.cores, []).append(rank)
    if len(pinned) > 1:
        for cores, members in sorted(pinned.items()):
            single = cores.isdigit()
            if single and len(members) > 1:
                notes.append(f"rank {RankSet.of(members).fold()} share core {cores}")
    return tuple(notes)
