"""What a job would have taken, had a rank been as fast as its peers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from relkit.straggler.model import Floats
from relkit.straggler.score.what_if import what_if


def test_the_slowest_rank_is_what_a_step_takes() -> None:
    local_s = np.array([[1.0, 1.0, 1.5], [1.0, 2.0, 1.5], [1.0, 1.0, 1.0]])
    ideal = what_if(local_s, ["a"] * 3)
    # With rank 1 at its peers' 1.25, rank 2 is the slowest; it is between its own.
    assert ideal.lost_s.tolist() == [0.5, 0.5, 0.0]
    assert ideal.by_rank_s.tolist() == [[0.0, 0.0, 0.5], [0.0, 0.5, 0.0], [0.0, 0.0, 0.0]]


def test_who_has_no_peers_stays_as_it_is() -> None:
    ideal = what_if(np.array([[1.0, 1.0, 3.0]]), ["a", "a", "b"])
    assert ideal.lost_s.tolist() == [0.0]


TIMES = arrays(
    np.float64, st.tuples(st.integers(1, 5), st.integers(1, 6)),
    elements=st.one_of(st.floats(0.0, 100.0), st.just(float("nan"))),
)  # fmt: skip


@given(TIMES, st.integers(1, 3))
def test_nobody_loses_more_than_the_step_or_wins_more_than_all(
    local_s: Floats, groups: int
) -> None:
    ideal = what_if(local_s, [rank % groups for rank in range(local_s.shape[1])])
    known = np.isfinite(local_s).any(axis=1)
    assert np.isfinite(ideal.lost_s[known]).all()
    assert np.isnan(ideal.lost_s[~known]).all()
    longest = np.nan_to_num(local_s).max(axis=1)
    lost_s = np.nan_to_num(ideal.lost_s)
    assert (lost_s >= 0.0).all()
    assert (lost_s <= longest).all()
    assert (ideal.by_rank_s >= 0.0).all()
    assert (ideal.by_rank_s <= lost_s[:, None] + 1e-9).all()
    # To be held against one's own group changes nothing where all are equal.
    even = np.ones_like(local_s)
    assert what_if(even, ["a"] * even.shape[1]).lost_s == pytest.approx(0.0)
