"""Which links are bad: by their own answer, and beside the others."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relkit.hang.links.health import better, doubtful, health_of
from relkit.hang.links.model import Health, LinkMeasurement

GOOD = LinkMeasurement(1, 2, 940.0, 0.1)
CUT = LinkMeasurement(0, 2, failure="no answer", is_cut=True)


def links(*speeds: float, trip_ms: float = 0.1) -> list[LinkMeasurement]:
    """Of 0-1, 0-2, 1-2 and so on; 0 for one that is cut."""
    nodes = next(n for n in range(2, 10) if n * (n - 1) // 2 >= len(speeds))
    ends = combinations(range(nodes), 2)
    return [
        LinkMeasurement(low, high, speed, trip_ms)
        if speed
        else LinkMeasurement(low, high, failure="no answer", is_cut=True)
        for (low, high), speed in zip(ends, speeds, strict=False)
    ]


@pytest.mark.parametrize(
    ("speeds", "bad"),
    [
        ([940, 900, 960], {}),
        # Ten times is slow, nine is not.
        ([94, 940, 940], {(0, 1): Health.SLOW}),
        ([104, 940, 940], {}),
        ([0, 940, 940], {(0, 1): Health.CUT}),
        # A node whose links are all slow, or all cut, of three and of four.
        ([940, 12, 12], {(0, 2): Health.SLOW, (1, 2): Health.SLOW}),
        ([940, 0, 0], {(0, 2): Health.CUT, (1, 2): Health.CUT}),
        ([9, 9, 9, 940, 940, 940], dict.fromkeys([(0, 1), (0, 2), (0, 3)], Health.SLOW)),
        # Alone, nothing is slow.
        ([1], {}),
    ],
)
def test_what_is_bad(speeds: list[float], bad: dict[tuple[int, int], Health]) -> None:
    health = health_of(links(*speeds))
    assert {ends: each for ends, each in health.items() if each is not Health.GOOD} == bad


def test_where_no_link_answers_none_is_called_cut() -> None:
    assert set(health_of(links(0, 0, 0)).values()) == {Health.UNMEASURED}


def test_a_probe_that_failed_by_itself_convicts_nobody() -> None:
    failed = LinkMeasurement(0, 1, failure="the probe failed")
    health = health_of([failed, GOOD])
    assert health == {(0, 1): Health.UNMEASURED, (1, 2): Health.GOOD}


def test_a_late_answer_is_slow_only_where_it_matters() -> None:
    late = LinkMeasurement(0, 1, 940.0, 60.0)
    assert health_of([late, GOOD])[0, 1] is Health.SLOW
    # Ten times the others, and still short.
    assert health_of([LinkMeasurement(0, 1, 940.0, 5.0), GOOD])[0, 1] is Health.GOOD
    # Long, and so are all.
    far = LinkMeasurement(1, 2, 940.0, 55.0)
    assert health_of([late, far])[0, 1] is Health.GOOD


def test_what_is_in_doubt_is_measured_again_and_the_better_counts() -> None:
    assert doubtful([CUT, GOOD]) == ((0, 2),)
    again = LinkMeasurement(0, 2, 900.0, 0.1)
    assert better(CUT, again) is again
    assert better(again, CUT) is again
    failed = LinkMeasurement(0, 2, failure="the probe failed")
    assert better(CUT, failed) is failed


@given(st.lists(st.floats(100.0, 999.0), min_size=1, max_size=28))
def test_links_within_a_factor_of_ten_are_never_convicted(speeds: list[float]) -> None:
    assert set(health_of(links(*speeds)).values()) == {Health.GOOD}


@given(
    st.lists(st.floats(1.0, 1e5), min_size=2, max_size=28),
    st.data(),
    st.sampled_from([0.25, 1.0, 4.0, 1024.0]),
)
def test_only_the_proportions_count_and_no_faster_link_is_worse(
    speeds: list[float], data: st.DataObject, factor: float
) -> None:
    health = health_of(links(*speeds))
    assert health == health_of(links(*(factor * speed for speed in speeds)))
    # Whoever is fastest has nobody who is ten times as fast.
    fastest = max(range(len(speeds)), key=lambda i: speeds[i])
    assert list(health.values())[fastest] is Health.GOOD
    cut = data.draw(st.integers(0, len(speeds) - 1))
    with_cut = [0.0 if i == cut else speed for i, speed in enumerate(speeds)]
    assert list(health_of(links(*with_cut)).values())[cut] is Health.CUT
