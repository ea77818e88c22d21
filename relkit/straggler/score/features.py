"""What of a step is tested: parts and sums of parts, each of which shows some fault the soonest."""

from __future__ import annotations

import numpy as np

from relkit.straggler import model
from relkit.straggler.model import LOCAL_PARTS, RUN_QUEUE_WAIT, THROTTLED, Floats

FEATURES = ("compute", "input", "whole", "without_wait", "off_cpu")
COMPUTE, WHOLE, WITHOUT_WAIT, OFF_CPU = 0, 2, 3, 4


def features(parts: Floats) -> Floats:
    """(..., features, ranks), s: compute, input, the whole, the whole less run-queue wait, off-CPU.

    What other processes take from a core comes and goes in stretches of seconds; without it the
    time of a rank on a shared machine scatters by half as much. Time stopped by the cgroup stays
    in: the kernel counts it as run-queue wait too, and nobody else's work explains it.

    Args:
        parts: (..., parts, ranks) as in StepTable.
    """
    local_s = parts[..., :LOCAL_PARTS, :].sum(axis=-2)
    wait_s = np.nan_to_num(parts[..., RUN_QUEUE_WAIT, :]) - np.nan_to_num(parts[..., THROTTLED, :])
    without_wait_s = local_s - np.clip(wait_s, 0.0, np.maximum(np.nan_to_num(local_s), 0.0))
    values: Floats = np.stack(
        [
            parts[..., model.COMPUTE, :],
            parts[..., model.INPUT, :],
            local_s,
            without_wait_s,
            parts[..., model.OFF_CPU, :],
        ],
        axis=-2,
    )
    return values
