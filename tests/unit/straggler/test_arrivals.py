"""Lateness, transfer, and clocks of hosts from collectives."""

from __future__ import annotations

import numpy as np
import pytest

from relkit.straggler.model import Arrival, Position, RankStep, StepTable
from relkit.straggler.score.arrivals import arrivals, own_time
from relkit.straggler.score.clocks import estimate_offsets


def test_the_late_rank_has_the_shortest_collective_and_the_largest_lateness() -> None:
    starts = np.array([[0.0, 0.0, 5.0, 0.1]])
    ends = np.full((1, 4), 6.0)
    seen = arrivals(starts, ends, np.zeros(4))
    assert int(np.argmin(ends - starts)) == 2 == int(seen.last[0])
    assert seen.lateness_s[0, 2] == pytest.approx(4.95)
    assert seen.transfer_s[0] == pytest.approx(1.0)


def test_offsets_are_taken_out_of_lateness() -> None:
    starts, ends = np.zeros((3, 2)), np.ones((3, 2))
    offsets = np.array([0.0, 7.0])
    seen = arrivals(starts + offsets, ends + offsets, offsets)
    assert np.allclose(seen.lateness_s, 0.0)
    assert np.allclose(seen.transfer_s, 1.0)


def test_own_time_leaves_out_waiting_and_counts_overlaps_once() -> None:
    starts = np.array([[0.0], [2.0], [2.5], [6.0]])
    ends = np.array([[1.0], [4.0], [3.0], [7.0]])
    assert own_time(starts, ends) == pytest.approx([3.0])


def test_offsets_of_hosts_are_found_within_their_own_bounds() -> None:
    rng = np.random.default_rng(3)
    host = np.repeat([0, 1, 2], 4)
    true = np.array([0.0, 0.25, -3.0])
    starts = np.cumsum(rng.uniform(0.02, 0.1, (200, 1)), axis=0) + rng.uniform(0, 0.01, (200, 12))
    ends = starts.max(axis=1, keepdims=True) + rng.uniform(1e-4, 3e-4, (200, 12))
    found = estimate_offsets(starts + true[host], ends + true[host], host)
    assert np.all(found.least_s <= true)
    assert np.all(true <= found.most_s)
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


def test_a_table_of_single_ranks_knows_who_is_missing() -> None:
    late = Arrival("dp", 4, "allreduce", 8, 0.25, 0.5)
    table = StepTable.of([RankStep(2, 7, 1.0, 0.1, 0.2, arrivals=(late,))], 3)
    assert table.step == 7
    assert np.isnan(table.parts[:, :2]).all()
    assert table.parts[:3, 2] == pytest.approx([1.0, 0.1, 0.2])
    assert table.late_s[2] == 0.25
    with pytest.raises(ValueError, match="one step"):
        StepTable.of([RankStep(0, 1), RankStep(1, 2)], 2)


def test_ranks_that_differ_only_in_data_are_peers() -> None:
    assert Position(0, 1, 2).peers == Position(5, 1, 2).peers
    assert Position(0, 1, 2).peers != Position(0, 0, 2).peers
