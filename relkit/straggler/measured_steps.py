"""Steps of a job as somebody else has measured them: a profiler's traces, or a table of times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from relkit.straggler.model import Flags, Floats, Ints

# Rows of RankSteps.parts, in this order; all s, NaN = not known.
COMPUTE, INPUT, REST, COMMUNICATION, COLLECTION, WALL = range(6)
MEASURED_PARTS = 6


@dataclass(frozen=True, slots=True, eq=False)
class RankSteps:
    """What one rank took in each of its steps.

    Args:
        rank: global.
        numbers: of its steps, ascending, each once.
        parts: (MEASURED_PARTS, steps), s: at work; waiting for a batch; neither of these and in
            no communication; in communication only, which is mostly waiting for others; in
            Python's garbage collector, within the others; from its begin to its end. The first
            three are its local time.
        role: equal for ranks that do equal work; "" is known of nobody: it has no peers.
        host: name; "" = not known.
        operations: (name, the how-manieth of it in a step) of each row of operation_s.
        operation_s: (operations, steps), what each took, s; NaN = not in that step.
        longest: what took most of a step, (name, s a step), the longest first.
    """

    rank: int
    numbers: Ints
    parts: Floats
    role: str
    host: str = ""
    operations: tuple[tuple[str, int], ...] = ()
    operation_s: Floats = field(default_factory=lambda: np.empty((0, 0)))
    longest: tuple[tuple[str, float], ...] = ()

    def least_work_s(self, chosen: Flags) -> float:
        """A step with each operation as quick as it ever was in these, s: what a rank takes that
        has a core whenever it wants one. NaN = not known.

        Args:
            chosen: by step.
        """
        if not self.operation_s.size or not chosen.any():
            return float("nan")
        took_s = self.operation_s[:, chosen]
        known = np.isfinite(took_s)
        usual = 2 * known.sum(axis=1) > chosen.sum()
        return float(np.where(known, took_s, np.inf).min(axis=1)[usual].sum())


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredSteps:
    """What was read of a job.

    Args:
        name: of the folder or file.
        ranks: by number, each once.
        world_size: of the job; the highest rank and one more where nothing says it.
        how: what was timed: "kernels", "operations", "the columns of a table" or "step times".
        causes_known: the parts of a step are known, not only its length.
        busy_host_shows: a rank that waits for a core looks slow: there is no CPU time in it.
        devices: each rank has a device of its own.
        not_judged: rank -> why nothing is held against it.
        notes: what was not seen, or was taken for something, one sentence each.
        files: name -> what it was used as, or why not.
    """

    name: str
    ranks: tuple[RankSteps, ...]
    world_size: int
    how: str
    causes_known: bool = True
    busy_host_shows: bool = False
    devices: bool = False
    not_judged: Mapping[int, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)


class StepTimes(Protocol):
    """Files of one kind, from which steps are read."""

    def read(self) -> MeasuredSteps:
        """All of them.

        Raises:
            BadInputFile: they cannot be read, or hold no steps.
            UsageProblem: something must be told by the user, such as whose a file is.
        """
        ...
