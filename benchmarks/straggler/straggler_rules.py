"""What two other tools call a straggler, as rules on the same step times."""

from __future__ import annotations

import numpy as np

from relkit.straggler.model import Flags, Floats

NVRX_MIN = 0.75
DLROVER_FACTOR = 2.0


def nvrx(times_s: Floats) -> Flags:
    """NVRx's relative score: the least median of all ranks over the rank's own, below 0.75.

    Args:
        times_s: (steps, ranks) in the marked section or in kernels; communication is left out.
    """
    medians = np.median(times_s, axis=0)
    return np.asarray(medians.min() / medians < NVRX_MIN)


def dlrover(times_s: Floats) -> Flags:
    """DLRover's: the least time of a rank above twice the median of these. It is the rule of its
    check before the job; its open code has none at run time.
    """
    least = times_s.min(axis=0)
    return np.asarray(least > DLROVER_FACTOR * np.median(least))
