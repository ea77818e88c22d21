"""What a run says: who noticed what, what survives, and whether a room has become worse."""

from __future__ import annotations

import difflib
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tools.mutants.model import Break, Outcome, Result

_HERE = Path(__file__).parent
EQUIVALENT = _HERE / "equivalent.txt"
RATCHET = _HERE / "ratchet.txt"
# A room has become worse where chance alone would show so few so rarely.
_CHANCE = 0.05


def explanations(text: str) -> Mapping[str, str]:
    """Breaks that change nothing -> why, from lines `file::function | old -> new | why`."""
    rows = [line.split(" | ") for line in text.splitlines() if line and not line.startswith("#")]
    return {f"{where} | {what}": why for where, what, why in rows}


def name_of(change: Break) -> str:
    """What such a line begins with; it holds as long as these words are in that function."""
    return f"{change.file}::{change.function} | {change.old} -> {change.new}"


def shares(results: Iterable[Result]) -> Mapping[str, tuple[int, int]]:
    """Room -> how many breaks were noticed or change nothing, of how many."""
    good: Counter[str] = Counter()
    tried: Counter[str] = Counter()
    for result in results:
        if result.outcome is not Outcome.UNTRIED:
            tried[result.change.room] += 1
            good[result.change.room] += result.outcome is not Outcome.SURVIVED
    return {room: (good[room], tried[room]) for room in sorted(tried)}


def read_ratchet(text: str) -> Mapping[str, tuple[int, int]]:
    """Room -> how many were noticed so far, of how many."""
    rows = (line.split() for line in text.splitlines() if line and not line.startswith("#"))
    return {room: (int(noticed), int(tried)) for room, noticed, tried in rows}


def worse_rooms(
    now: Mapping[str, tuple[int, int]], before: Mapping[str, tuple[int, int]]
) -> list[str]:
    """Rooms that have noticed fewer breaks than chance can explain by their share so far."""
    return [
        room
        for room, (good, tried) in now.items()
        if room in before and chance_of_at_most(good, tried, before[room]) < _CHANCE
    ]


def chance_of_at_most(good: int, tried: int, before: tuple[int, int]) -> float:
    """How likely it is that so few are noticed where nothing has changed."""
    share = before[0] / before[1]
    return sum(
        math.comb(tried, count) * share**count * (1 - share) ** (tried - count)
        for count in range(good + 1)
    )


def with_more(before: Mapping[str, tuple[int, int]], now: Mapping[str, tuple[int, int]]) -> str:
    """The ratchet's text after one more run."""
    zero = (0, 0)
    rows = [
        f"{room} {before.get(room, zero)[0] + now.get(room, zero)[0]}"
        f" {before.get(room, zero)[1] + now.get(room, zero)[1]}"
        for room in sorted({*before, *now})
    ]
    return "\n".join(["# room, noticed or changing nothing, tried: `make mutants`", *rows, ""])


def diff_of(root: Path, change: Break) -> str:
    """What the break changes."""
    whole = (root / change.file).read_text(encoding="utf-8")
    lines = difflib.unified_diff(
        whole.splitlines(), change.source.splitlines(), change.file, "broken", n=1, lineterm=""
    )
    return "\n".join(f"    {line}" for line in lines)


def summary(root: Path, results: Sequence[Result]) -> str:
    """How many of each kind, the shares of the rooms, and what survives."""
    counts = Counter(result.outcome for result in results)
    lines = [f"\n{len(results)} breaks"]
    lines += [f"  {counts[outcome]:4d} {outcome.value}" for outcome in Outcome if counts[outcome]]
    lines += [f"  {room}: {good} of {tried}" for room, (good, tried) in shares(results).items()]
    for result in results:
        if result.outcome in (Outcome.SURVIVED, Outcome.UNTRIED):
            lines += ["", f"{result.outcome.value}: {result.change.title}", f"    {result.why}"]
            lines += [diff_of(root, result.change)] if result.change.source else []
    return "\n".join(lines)
