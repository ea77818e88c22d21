"""What it takes to accuse a rank: the limit, the smallest slowdown, and how soon."""

from __future__ import annotations

import numpy as np
import pytest

from relkit.straggler.model import PARTS, Cause
from relkit.straggler.score.rank_scorer import RankScorer, Settings
from relkit.straggler.step_record import StepTable

RANKS = 8
ONSET = 20


def first_accused(slower: float, steps: int, sigma: float = 0.001) -> int:
    """The step in which rank 3, slower by this share from ONSET on, is accused; -1: in none."""
    rng, scorer = np.random.default_rng(4), RankScorer([0] * RANKS)
    for step in range(steps):
        parts = np.zeros((len(PARTS), RANKS))
        parts[0] = 0.1 * (1.0 + sigma * rng.standard_normal(RANKS))
        parts[0, 3] *= 1.0 + slower if step >= ONSET else 1.0
        (judged,) = scorer.update([StepTable(step, parts, np.full(RANKS, np.nan))])
        accused = {verdict.rank for verdict in judged if verdict.cause is not Cause.NOISE}
        assert accused <= {3}
        if accused:
            return step
    return -1


@pytest.mark.parametrize(("ranks", "limit"), [(1, 11.695), (8, 13.775), (1024, 18.627)])
def test_the_limit_of_a_job(ranks: int, limit: float) -> None:
    """ln(ranks x 4 sums x 3 slowdowns x sqrt(10,000 steps) / 1 %)."""
    assert Settings().limit(ranks) == pytest.approx(limit, abs=0.001)


def test_a_plain_fault_is_raised_in_the_step_in_which_the_limit_is_reached() -> None:
    # A step adds at most 3 to the log-likelihood: the fifth is the first to exceed 13.775.
    assert first_accused(0.3, 40) == ONSET + 4


def test_what_is_below_the_smallest_slowdown_is_never_raised_however_plain() -> None:
    assert first_accused(0.032, 300) == -1
    assert first_accused(0.048, 300) >= ONSET
