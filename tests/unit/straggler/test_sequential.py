"""The evidence of one step against a rank, and how it adds up."""

from __future__ import annotations

import numpy as np
import pytest

from relkit.straggler.score.sequential import MAX_PER_STEP, Cusum, ShiftTest


def test_a_slowdown_below_half_of_what_is_tested_for_clears_the_rank() -> None:
    test = ShiftTest((0.1,), (3,), 20.0)
    ratio = test.ratio(np.array([0.04, 0.05, 0.06]), np.full(3, 0.1))
    assert ratio[0] == pytest.approx([-0.1, 0.0, 0.1])


def test_no_step_counts_for_more_than_three_either_way() -> None:
    test = ShiftTest((0.1,), (3,), 20.0)
    ratio = test.ratio(np.array([9.0, -9.0, np.nan]), np.full(3, 0.01))
    assert ratio[0].tolist() == [MAX_PER_STEP, -MAX_PER_STEP, 0.0]
    assert MAX_PER_STEP == 3.0


def test_evidence_stays_between_zero_and_a_little_above_the_limit() -> None:
    test = Cusum((1,), 10.0)
    for step, ratio in enumerate([-2.0, 1.0, 2.0, -9.0, *[3.0] * 9]):
        test.add(step, np.array([ratio]))
    # It started again from zero after step 3.
    assert test.onset.tolist() == [4]
    assert test.log_likelihood.tolist() == [16.0]
