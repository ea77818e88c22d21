"""Which sorts of operations take longer in one recording than in another (pure)."""

from __future__ import annotations

from dataclasses import dataclass

from relkit.timeline.durations import Durations, JobDurations, Sort

# Fewer operations of a sort say nothing of it.
MIN_COUNT = 12
# A median is worth a word where it grew by so much, and its bounds are apart.
MIN_GROWTH = 0.05
# Of the normal distribution: one in a thousand medians is outside of its bounds.
_SURE = 3.3


@dataclass(frozen=True, slots=True)
class Change:
    """One sort of operations in both recordings.

    Args:
        sort: what; before_ns, after_ns: medians; before_count, after_count: operations.
        per_step_ns: what it makes of a step of a rank; 0 where no steps were seen.
    """

    sort: Sort
    before_ns: float
    after_ns: float
    before_count: int
    after_count: int
    per_step_ns: float

    @property
    def ratio(self) -> float:
        """After by before."""
        return self.after_ns / self.before_ns


@dataclass(frozen=True, slots=True)
class Diff:
    """What changed.

    Args:
        slower, faster: by what they make of a step, the most first.
        compared: sorts that both have often enough; thin: that are too rare in one of them.
    """

    slower: tuple[Change, ...]
    faster: tuple[Change, ...]
    compared: int
    thin: int


def compare(before: JobDurations, after: JobDurations) -> Diff:
    """Compare two recordings.

    Args:
        before, after: of the same job, or of two that should be alike.
    """
    slower, faster = [], []
    compared = thin = 0
    for sort in sorted(before.by_sort.keys() & after.by_sort.keys()):
        old, new = before.by_sort[sort], after.by_sort[sort]
        if min(old.count, new.count) < MIN_COUNT:
            thin += 1
            continue
        compared += 1
        change = _change(sort, old, new, after)
        if _lower(new) > _upper(old) * (1 + MIN_GROWTH):
            slower.append(change)
        elif _lower(old) > _upper(new) * (1 + MIN_GROWTH):
            faster.append(change)
    return Diff(
        tuple(sorted(slower, key=lambda each: (-each.per_step_ns, -each.ratio))),
        tuple(sorted(faster, key=lambda each: (each.per_step_ns, each.ratio))),
        compared,
        thin,
    )


def _change(sort: Sort, old: Durations, new: Durations, after: JobDurations) -> Change:
    grown_ns = new.median_ns - old.median_ns
    # Of a transfer one duration stands for all ranks; each of them waits for it.
    times = new.count * (sort.ranks if sort.phase == "transfer" else 1)
    per_step_ns = grown_ns * times / after.steps if after.steps else 0.0
    return Change(sort, old.median_ns, new.median_ns, old.count, new.count, per_step_ns)


def _lower(durations: Durations) -> float:
    """The median is no less than that."""
    return durations.at((durations.count - 1) / 2 - _SURE * durations.count**0.5 / 2)


def _upper(durations: Durations) -> float:
    """The median is no more than that."""
    place = (durations.count - 1) / 2 + _SURE * durations.count**0.5 / 2
    return durations.at(min(place, durations.count - 1))
