"""What straggler scoring looks at, one rank and one step at a time, and the verdict it reaches."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

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
    UNKNOWN = "unknown"
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


class PartTimes(NamedTuple):
    """Seconds of one rank in one step; NaN = not known.

    Args:
        compute_s: in timed kernels; input_s: waiting for the next batch; unattributed_s: the rest
            of the time outside of communication. These three do not overlap; together they are
            the rank's local time.
        gc_s: garbage collection; run_queue_wait_s: runnable without a core, as the kernel counts
            it, together with throttled_s: stopped by its cgroup; off_cpu_s: the main thread
            neither ran nor was runnable, also while it waits for a device. They are parts of the
            three above, not on top.
        excused_s: so much of the local time at most went into saving files, or into waiting for
            threads and loader workers that had no core. It may overlap with all of these.
    """

    compute_s: float
    input_s: float
    unattributed_s: float
    gc_s: float
    run_queue_wait_s: float
    throttled_s: float
    off_cpu_s: float
    excused_s: float = 0.0

    @property
    def local_s(self) -> float:
        """What the rank took itself, waiting for others left out."""
        return self.compute_s + self.input_s + self.unattributed_s


PARTS = tuple(name.removesuffix("_s") for name in PartTimes._fields)
"""Names of the parts, in the order of the rows of every array that holds them."""

COMPUTE, INPUT, UNATTRIBUTED, GC, RUN_QUEUE_WAIT, THROTTLED, OFF_CPU, EXCUSED = range(len(PARTS))

LOCAL_PARTS = 3
"""The first so many of PARTS add up to the local time."""


ACCUSED_FROM = 0.9
"""Confidence of a verdict from which on somebody is accused; below it is a suspicion."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One rank, link or host that makes the job slow.

    Args:
        subject: which of the three it is.
        cause: why.
        score: how much slower than its peers (or its own past), as a share: 0.1 = 10 %; of a
            network, how much longer a transfer takes.
        confidence: 0..1, that it is slow by itself, and no other; the cause may be less sure.
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

    @property
    def accuses(self) -> bool:
        """It is sure enough to be said as more than a suspicion."""
        return self.confidence >= ACCUSED_FROM
