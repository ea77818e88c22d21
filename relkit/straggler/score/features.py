"""What of a step is tested: parts and sums of parts, each of which shows some fault the soonest."""

from __future__ import annotations

import numpy as np

from relkit.straggler import model
from relkit.straggler.model import LOCAL_PARTS, RUN_QUEUE_WAIT, THROTTLED, Floats

FEATURES = ("compute", "input", "own", "off_cpu")
OWN, OFF_CPU = 2, 3


def features(parts: Floats) -> Floats:
    """(..., features, ranks), s: compute, input, all of its own time, off-CPU time.

    A rank that waits for a core is not slow: others have it. So that is no time of its own, except
    where its cgroup stopped it: the kernel counts that as run-queue wait too, and nobody else's
    work explains it.

    Args:
        parts: (..., parts, ranks) as in StepTable.
    """
    local_s = parts[..., :LOCAL_PARTS, :].sum(axis=-2)
    wait_s = np.nan_to_num(parts[..., RUN_QUEUE_WAIT, :]) - np.nan_to_num(parts[..., THROTTLED, :])
    own_s = local_s - np.clip(wait_s, 0.0, np.maximum(np.nan_to_num(local_s), 0.0))
    values: Floats = np.stack(
        [parts[..., model.COMPUTE, :], parts[..., model.INPUT, :], own_s,
         parts[..., model.OFF_CPU, :]],
        axis=-2,
    )  # fmt: skip
    return values
