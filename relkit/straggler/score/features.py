"""Sums of a step's parts that are tested one by one: each shows some fault sooner than the rest."""

from __future__ import annotations

import numpy as np

from relkit.straggler.model import PARTS, Floats

CHANNELS = ("compute", "input", "whole", "unstarved", "asleep")
COMPUTE, WHOLE, UNSTARVED = 0, 2, 3
_OWN = 3
_STARVED, _THROTTLED, _ASLEEP = (PARTS.index(name) for name in ("starved", "throttled", "asleep"))


def channels(parts: Floats) -> Floats:
    """(..., channels, ranks), s: compute, input, the whole, the whole less starvation, sleep.

    What other processes take from a core comes and goes in stretches of seconds; without it the
    time of a rank on a shared machine scatters by half as much. Time stopped by the cgroup stays
    in: the kernel counts it as starvation too, and nobody else's work explains it.

    Args:
        parts: (..., parts, ranks) as in StepTable.
    """
    own = parts[..., :_OWN, :].sum(axis=-2)
    waits = np.nan_to_num(parts[..., _STARVED, :]) - np.nan_to_num(parts[..., _THROTTLED, :])
    unstarved = own - np.clip(waits, 0.0, np.maximum(np.nan_to_num(own), 0.0))
    compute, waited, asleep = parts[..., 0, :], parts[..., 1, :], parts[..., _ASLEEP, :]
    found: Floats = np.stack([compute, waited, own, unstarved, asleep], axis=-2)
    return found
