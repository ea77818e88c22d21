"""What straggler scoring looks at, one rank and one step at a time, and the verdict it reaches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


class Cause(str, Enum):
    """Why something is slow."""

    COMPUTE = "slow-compute"
    NETWORK = "slow-network"
    INPUT = "slow-input"
    HOST = "slow-host"
    NOISE = "noise"

    def __str__(self) -> str:
        return self.value


class Subject(str, Enum):
    """What a verdict speaks of."""

    RANK = "rank"
    LINK = "link"
    HOST = "host"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Arrival:
    """One rank in one collective.

    Args:
        communicator, seq: which collective; operation, size_bytes: what it was.
        lateness_s: start of this rank after the median start of its group, s; negative = early.
        transfer_s: from the last arrival of the group to the end on this rank, s.
    """

    communicator: str
    seq: int
    operation: str
    size_bytes: int
    lateness_s: float
    transfer_s: float


@dataclass(frozen=True, slots=True)
class RankStep:
    """What one rank did in one step, outside of the time it waited for others.

    Args:
        rank, step: which.
        compute_s: in hooked kernels; input_s: waiting for the next batch; gap_s: the rest of the
            time outside of communication, s. The three do not overlap; their sum is what the
            rank itself took.
        gc_s: garbage collection; starved_s: runnable without a core, as the kernel counts it: with
            throttled_s, stopped by its cgroup; asleep_s: the main thread neither ran nor wanted
            to, s. They are parts of the three above, not on top; NaN = not known.
        arrivals: its collectives, oldest first; () where they are not known.
    """

    rank: int
    step: int
    compute_s: float = 0.0
    input_s: float = 0.0
    gap_s: float = 0.0
    gc_s: float = 0.0
    starved_s: float = 0.0
    throttled_s: float = 0.0
    asleep_s: float = float("nan")
    arrivals: tuple[Arrival, ...] = ()


@dataclass(frozen=True, slots=True)
class Position:
    """Where a rank stands in the parallel layout; ranks that differ only in `dp` do equal work.

    Args:
        dp, tp, pp: its index in each dimension; -1 where not known.
    """

    dp: int = -1
    tp: int = -1
    pp: int = -1

    @property
    def peers(self) -> tuple[int, int]:
        """Ranks with the same value are compared with each other."""
        return self.tp, self.pp


# The first three add up to a rank's own time; the others are parts of these.
PARTS = ("compute", "input", "gap", "gc", "starved", "throttled", "asleep")


@dataclass(frozen=True, slots=True)
class StepTable:
    """One step of all ranks, as arrays over the rank.

    Args:
        step: its number.
        parts: seconds, one row for each of PARTS; NaN in all rows of a rank that is not known,
            NaN from the fourth row on where just that is not known.
        late_s: by how much the rank came after the middle of its groups, added up over the
            step's collectives; NaN where that is not known.
    """

    step: int
    parts: Floats
    late_s: Floats

    @classmethod
    def of(cls, ranks: Sequence[RankStep], world_size: int) -> StepTable:
        """From single ranks, in any order; those missing are not known.

        Raises:
            ValueError: ranks of different steps, or none.
        """
        steps = {rank.step for rank in ranks}
        if len(steps) != 1:
            raise ValueError(f"a table holds one step, not {sorted(steps)}")
        parts = np.full((len(PARTS), world_size), np.nan)
        late_s = np.full(world_size, np.nan)
        for one in ranks:
            parts[:, one.rank] = (
                one.compute_s, one.input_s, one.gap_s,
                one.gc_s, one.starved_s, one.throttled_s, one.asleep_s,
            )  # fmt: skip
            if one.arrivals:
                late_s[one.rank] = sum(arrival.lateness_s for arrival in one.arrivals)
        return cls(steps.pop(), parts, late_s)


@dataclass(frozen=True, slots=True)
class Verdict:
    """One rank, link or host that makes the job slow.

    Args:
        subject: which of the three it is.
        cause: why.
        score: how much slower than its peers (or its own past), as a share: 0.1 = 10 %; of a
            network, how much longer a transfer takes.
        confidence: 0..1, of subject and cause together.
        first_step: the first step of the slowness.
        cost_s: seconds that it has cost the job since then.
        reasons: what makes relkit think so, strongest first.
        rank: of a rank, else -1; ends: host names, two of a link (from, to), one of a host.
    """

    subject: Subject
    cause: Cause
    score: float
    confidence: float
    first_step: int
    cost_s: float
    reasons: tuple[str, ...]
    rank: int = -1
    ends: tuple[str, ...] = ()
