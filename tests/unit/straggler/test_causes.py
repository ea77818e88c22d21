"""Why a rank is slow, from the mean parts of its steps and of its peers'."""

from __future__ import annotations

import numpy as np
import pytest

from relkit.straggler.model import (
    COMPUTE,
    GC,
    OFF_CPU,
    PARTS,
    RUN_QUEUE_WAIT,
    THROTTLED,
    UNATTRIBUTED,
    Cause,
    Floats,
)
from relkit.straggler.score.causes import attribute


def parts(**seconds: float) -> Floats:
    """Mean parts of a step: 0.1 s of compute, and what is given on top."""
    values = np.zeros(len(PARTS))
    values[COMPUTE] = 0.1
    for name, value in seconds.items():
        values[PARTS.index(name)] += value
    return values


def test_the_host_is_to_blame_from_half_of_the_slowdown_on() -> None:
    grown = parts()
    grown[COMPUTE] += 0.02
    for stolen_s, cause in ((0.009, Cause.COMPUTE), (0.011, Cause.HOST)):
        for part in (GC, THROTTLED):
            mine = grown.copy()
            mine[part] = stolen_s
            assert attribute(mine, parts()).cause is cause, PARTS[part]


def test_run_queue_wait_is_no_part_of_a_slowdown() -> None:
    peers = parts()
    peers[UNATTRIBUTED] = peers[RUN_QUEUE_WAIT] = 0.3
    # Twice the running, and so twice the waiting: the work is more.
    assert attribute(2.0 * peers, peers).cause is Cause.COMPUTE
    waits = peers.copy()
    waits[UNATTRIBUTED] += 0.05
    waits[RUN_QUEUE_WAIT] += 0.05
    assert attribute(waits, peers).cause is Cause.NOISE
    # Also where it was a kernel that had no core.
    kernel = peers.copy()
    kernel[COMPUTE] += 0.05
    kernel[RUN_QUEUE_WAIT] += 0.05
    assert attribute(kernel, peers).cause is Cause.NOISE


def test_throttled_time_is_not_counted_as_run_queue_wait_too() -> None:
    mine = parts()
    mine[COMPUTE] += 0.02
    mine[RUN_QUEUE_WAIT] = mine[THROTTLED] = 0.009
    attribution = attribute(mine, parts())
    assert attribution.cause is Cause.COMPUTE
    assert attribution.share == pytest.approx(1.0)


def test_a_rank_that_is_no_slower_has_no_cause() -> None:
    attribution = attribute(parts(), parts())
    assert (attribution.cause, attribution.share) == (Cause.NOISE, 0.0)


def test_off_cpu_time_is_the_device_only_where_the_peers_have_it_too() -> None:
    peers = np.zeros(len(PARTS))
    peers[UNATTRIBUTED] = 0.1
    for usual_s, cause in ((0.029, Cause.INPUT), (0.031, Cause.COMPUTE)):
        peers[OFF_CPU] = usual_s
        mine = peers.copy()
        mine[UNATTRIBUTED] += 0.02
        mine[OFF_CPU] += 0.02
        assert attribute(mine, peers).cause is cause
