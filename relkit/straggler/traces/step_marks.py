"""Which events of a trace mark its steps, and from when to when each step is; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from relkit.straggler.model import Floats, Ints

Mark = tuple[float, float, int, int]
"""Begin and end in us, the number of the step or -1, the thread."""

PROFILER = "ProfilerStep"
_FEWEST = 2


@dataclass(frozen=True, slots=True, eq=False)
class Windows:
    """The steps of one rank.

    Args:
        numbers: ascending; begin_us, end_us: of each. thread: that marks them, -1 = not known.
    """

    numbers: Ints
    begin_us: Floats
    end_us: Floats
    thread: int

    def __len__(self) -> int:
        return len(self.numbers)


def labels_by_worth(marks: Mapping[str, Sequence[Mark]]) -> tuple[str, ...]:
    """What may mark the steps of a trace, the best first."""
    worth = {label: _worth(label, found_marks) for label, found_marks in marks.items()}
    return tuple(sorted((each for each in worth if worth[each] > 0), key=lambda at: -worth[at]))


def _worth(label: str, marks: Sequence[Mark]) -> int:
    if label == PROFILER:
        return 10
    if len(marks) < _FEWEST:
        return 0
    if marks[0][2] >= 0:
        return 9
    # Of an optimizer the end ends the step; of the others the begin begins it.
    for place, start in enumerate(
        ("DistributedDataParallel", "enumerate(DataLoader)", "Optimizer")
    ):
        if label.startswith(start):
            return 5 + place
    return 8


def windows_of(label: str, marks: Sequence[Mark]) -> Windows:
    """The steps by one kind of mark.

    A mark with a number, or called a step, is the step from its begin to its end. What comes once
    a step only parts the steps: then what is before the first, or behind the last, is in none.
    """
    ordered = sorted(marks)
    begin, end = (np.array([mark[place] for mark in ordered]) for place in (0, 1))
    number = np.array([mark[2] for mark in ordered], dtype=np.int64)
    thread = ordered[0][3] if len({mark[3] for mark in ordered}) == 1 else -1
    if label.startswith("Optimizer"):
        begin, end = end[:-1], end[1:]
    elif label.startswith(("DistributedDataParallel", "enumerate(DataLoader)")):
        begin, end = begin[:-1], begin[1:]
    if (number >= 0).all():
        # A number that comes again is another loop's: nobody knows which is meant.
        once = np.bincount(np.unique(number, return_inverse=True)[1]) == 1
        kept = once[np.unique(number, return_inverse=True)[1]]
        begin, end, number = begin[kept], end[kept], number[kept]
        order = np.argsort(number, kind="stable")
        begin, end, number = begin[order], end[order], number[order]
    else:
        number = np.arange(len(begin), dtype=np.int64)
    return Windows(number, begin, end, thread)
