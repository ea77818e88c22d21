"""The period of a sequence of collectives."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relkit.straggler.collect.step_pattern import MIN_MATCH, find_period


def _primitive(pattern: list[int]) -> bool:
    doubled = pattern + pattern
    return not any(doubled[s : s + len(pattern)] == pattern for s in range(1, len(pattern)))


def _period(codes: Sequence[int]) -> tuple[int, float]:
    return find_period(np.array(codes, dtype=np.int64))


_patterns = st.lists(st.integers(0, 3), min_size=1, max_size=12).filter(_primitive)


@given(pattern=_patterns, times=st.integers(4, 20))
def test_a_plain_loop_repeats_after_one_step(pattern: list[int], times: int) -> None:
    assert _period(pattern * times) == (len(pattern), 1.0)


@settings(max_examples=60)
@given(
    pattern=_patterns.filter(lambda p: len(p) >= 3),
    after=st.integers(4, 19),
    length=st.integers(1, 6),
)
def test_an_evaluation_does_not_change_the_period(
    pattern: list[int], after: int, length: int
) -> None:
    period, match = _period(pattern * after + [9] * length + pattern * (24 - after))
    # Several steps may repeat as well as one: whoever asks takes the primitive part.
    assert period
    assert period % len(pattern) == 0
    assert MIN_MATCH <= match < 1.0


def test_two_evaluations_among_many_steps_do_not_make_a_longer_period() -> None:
    step, evaluation = [1, 2, 3], [9] * 7
    assert _period(step * 40 + evaluation + step * 55 + evaluation + step * 40)[0] == 3


def test_a_step_with_one_collective_more_or_less_does_not_change_the_period() -> None:
    step = [1, 2, 3, 4, 5, 6]
    assert _period(step * 6 + [1, 2, 3, 7, 4, 5, 6] + step * 6)[0] == 6
    assert _period(step * 6 + [1, 2, 4, 5, 6] + step * 6)[0] == 6


def test_no_period_where_nothing_repeats() -> None:
    assert _period(range(50)) == (0, 0.0)
    assert _period([]) == (0, 0.0)


def test_gradient_accumulation_is_one_step() -> None:
    assert _period(([1, 1] * 4 + [2]) * 8)[0] == 9


@pytest.mark.parametrize("step", [[1], [1, 2], [1, 2, 3, 4, 5]])
def test_a_log_every_fifty_steps_does_not_make_one_step_of_them(step: list[int]) -> None:
    assert _period((step * 50 + [9]) * 12)[0] == len(step)
    # What comes every twelfth time may as well belong to the step: accumulated gradients.
    assert _period((step * 12 + [9]) * 12)[0] == 12 * len(step) + 1
