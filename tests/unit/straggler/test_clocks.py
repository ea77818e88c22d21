"""Clocks of hosts, told by the collectives that their ranks leave together."""

from __future__ import annotations

import numpy as np
import pytest

from relkit.straggler.score.clocks import ClockOffsets, estimate_offsets


def test_offsets_of_hosts_are_found_within_their_own_bounds() -> None:
    rng = np.random.default_rng(3)
    host = np.repeat([0, 1, 2], 4)
    true = np.array([0.0, 0.25, -3.0])
    starts = np.cumsum(rng.uniform(0.02, 0.1, (200, 1)), axis=0) + rng.uniform(0, 0.01, (200, 12))
    ends = starts.max(axis=1, keepdims=True) + rng.uniform(1e-4, 3e-4, (200, 12))
    found = estimate_offsets(starts + true[host], ends + true[host], host)
    assert np.all(found.min_s <= true)
    assert np.all(true <= found.max_s)
    assert np.all(np.abs(found.offset_s - true) < 1e-4)
    assert np.all(found.sigma_s < 5e-5)


def test_a_host_that_was_never_seen_has_no_offset() -> None:
    host = np.array([0, 1])
    starts = np.array([[0.0, np.nan]] * 5)
    found = estimate_offsets(starts, starts + 1.0, host)
    assert np.isnan(found.offset_s[1])
    assert np.isinf(found.sigma_s[1])


def test_offsets_want_shapes_that_fit() -> None:
    with pytest.raises(ValueError, match="shapes differ"):
        estimate_offsets(np.zeros((2, 3)), np.zeros((2, 3)), np.zeros(2, dtype=np.int64))


def two_hosts(*collectives: tuple[float, float]) -> ClockOffsets:
    """Both ranks enter each collective at once, and leave it after so many seconds."""
    ends_s = np.array(collectives)
    return estimate_offsets(np.zeros_like(ends_s), ends_s, np.array([0, 1]))


def test_the_quickest_collectives_say_how_far_the_clocks_are_apart() -> None:
    offsets = two_hosts(*[(1.0, 1.05)] * 30, *[(0.1, 0.1)] * 10)
    assert offsets.offset_s.tolist() == [0.0, 0.0]


def test_no_noise_moves_a_clock_beyond_what_one_collective_proves() -> None:
    """Nobody leaves before the last has arrived: one short collective bounds the offset."""
    offsets = two_hosts(*[(0.0005, 4.0)] * 20, (0.001, 0.001))
    assert offsets.max_s[1] == 0.001
    assert offsets.offset_s[1] == 0.001
