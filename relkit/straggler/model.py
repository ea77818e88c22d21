"""What straggler scoring looks at, one rank and one step at a time, and the verdict it reaches."""

from __future__ import annotations

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
