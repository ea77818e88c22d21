"""Step boundaries from the period of the collectives."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from relkit.straggler.collect.step_period import infer_steps, steps_by_marks

Key = tuple[str, str, int]


def _primitive(pattern: list[int]) -> bool:
    doubled = pattern + pattern
    return not any(doubled[s : s + len(pattern)] == pattern for s in range(1, len(pattern)))


_patterns = st.lists(st.integers(0, 3), min_size=1, max_size=12).filter(_primitive)


@given(pattern=_patterns, times=st.integers(4, 20))
def test_a_plain_loop_gives_each_of_its_steps(pattern: list[int], times: int) -> None:
    found = infer_steps([("dp", "allreduce", size) for size in pattern * times])
    assert len(found.pattern) == len(pattern)
    assert len(found.steps) == times
    assert all(step.regular for step in found.steps)


@settings(max_examples=60)
@given(
    pattern=_patterns.filter(lambda p: len(p) >= 3),
    evaluations=st.lists(st.integers(4, 19), max_size=1),
    length=st.integers(1, 6),
)
def test_an_evaluation_is_no_step_and_costs_none(
    pattern: list[int], evaluations: list[int], length: int
) -> None:
    keys: list[int] = []
    for step in range(24):
        if step in evaluations:
            keys += [9] * length
        keys += pattern
    found = infer_steps(keys)
    assert len(found.pattern) == len(pattern)
    assert 9 not in found.pattern
    # The cut may begin in the middle of the loop: then each evaluation lies inside of a step.
    assert 24 - 2 * (1 + len(evaluations)) <= len(found.steps) <= 24
    assert all(a.end <= b.first for a, b in zip(found.steps, found.steps[1:], strict=False))


def test_two_evaluations_among_many_steps_do_not_make_a_longer_period() -> None:
    step = ["grad1", "grad2", "loss"]
    found = infer_steps(step * 40 + ["evaluate"] * 7 + step * 55 + ["evaluate"] * 7 + step * 40)
    assert len(found.pattern) == 3
    assert len(found.steps) == 135


def test_no_step_where_nothing_repeats() -> None:
    assert infer_steps(list(range(50))).steps == ()
    assert infer_steps([]).steps == ()


def test_steps_begin_at_the_longest_usual_gap() -> None:
    keys = ["loss", "grad1", "grad2"] * 10
    gaps = np.tile([0.1, 2.0, 0.1], 10)
    gaps[0] = 60.0
    found = infer_steps(keys, gaps)
    assert found.pattern == ("grad1", "grad2", "loss")
    assert found.steps[0].first == 1


def test_a_step_with_one_more_collective_is_still_a_step() -> None:
    step = list("abcdef")
    keys = step * 6 + list("abcXdef") + step * 6
    found = infer_steps(keys)
    assert len(found.steps) == 13
    assert [s.regular for s in found.steps].count(False) == 1


def test_a_step_that_leaves_one_out_is_still_a_step() -> None:
    step = list("abcdef")
    found = infer_steps(step * 6 + list("abdef") + step * 6)
    assert len(found.steps) == 13


def test_gradient_accumulation_is_one_step() -> None:
    step = ["tp", "tp"] * 4 + ["dp"]
    found = infer_steps(step * 8)
    assert len(found.pattern) == 9
    assert len(found.steps) == 8


def test_marks_are_exact() -> None:
    found = steps_by_marks(np.arange(10.0), np.array([1.5, 4.0, 8.0]))
    assert found.exact
    assert [(s.first, s.end) for s in found.steps] == [(2, 4), (4, 8)]
