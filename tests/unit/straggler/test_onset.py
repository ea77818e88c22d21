"""In which step a slowdown of unknown size began."""

from __future__ import annotations

import numpy as np
import pytest

from relkit.straggler.score.onset import OnsetFinder, begins

FEATURES, RANKS = 2, 3


@pytest.mark.parametrize(
    ("slowdown", "place"),
    [
        # What is a trifle beside the fault is before it, and what is small itself is not.
        ([0.12, 0.03, 0.03, -0.04, 0.1, 0.0, 0.39, 0.43, 0.44], 6),
        ([0.12, 0.03, 0.03, -0.04, 0.1, 0.0, 0.05, 0.06, 0.05], 0),
        ([0.05, 0.04, 0.06, 0.05], 0),
        # Now and then, from the third step on.
        ([0.0, 0.01, 0.4, 0.0, 0.0, 0.4, 0.0, 0.0, 0.4, 0.0, 0.0, 0.4], 2),
        # One pause in it, be it the last step.
        ([0.01, 0.05, 0.05, 0.05, 0.05, 0.05, 0.05, 0.05, 0.05, 1.0], 1),
        ([0.2], 0),
    ],
)
def test_where_it_begins(slowdown: list[float], place: int) -> None:
    assert begins(np.array(slowdown)) == place


def _seen(finder: OnsetFinder, size: int, share: list[float]) -> None:
    """All ranks and features are as fast as the others, but for feature 1 of rank 2."""
    table = np.zeros((len(share), FEATURES, RANKS))
    table[:, 1, 2] = share
    numbers = 3 * np.arange(len(share))
    for first in range(0, len(share), size):
        finder.add(numbers[first : first + size], table[first : first + size])


@pytest.mark.parametrize("size", [1, 7, 64, 200])
def test_steps_may_come_together_and_have_gaps(size: int) -> None:
    finder = OnsetFinder(FEATURES, RANKS)
    _seen(finder, size, [0.0] * 100 + [0.04] * 10 + [0.4] * 5)
    assert finder.onset(300, 1, 2) == 330
    assert finder.onset(339, 1, 2) == 339


def test_evidence_from_before_what_is_kept_says_it_itself() -> None:
    finder = OnsetFinder(FEATURES, RANKS)
    _seen(finder, 1, [0.04] * 115)
    assert finder.onset(30, 1, 2) == 30


def test_steps_that_are_not_known_say_nothing() -> None:
    finder = OnsetFinder(FEATURES, RANKS)
    _seen(finder, 1, [0.01, 0.02, 0.4, np.nan, 0.4, np.nan, 0.4])
    assert finder.onset(0, 1, 2) == 6
