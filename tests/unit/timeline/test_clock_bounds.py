"""Clocks by what must have come before what: the truth is within the bound, or nothing is said."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from relkit.timeline.clock_bounds import (
    DRIFT,
    MIN_MATCHES,
    ClockOffset,
    SharedOperation,
    clock_offsets,
)

NEVER = -1
LIMIT_NS = 10_000_000.0


def collective(
    at_ns: int, skews_ns: list[int], come_ns: list[int], takes_ns: list[int]
) -> SharedOperation:
    """An all-reduce of one rank on each host, each time by the host's own clock."""
    begins = [at_ns + come for come in come_ns]
    return SharedOperation(
        np.arange(len(skews_ns)),
        np.array([begin + skew for begin, skew in zip(begins, skews_ns, strict=True)]),
        np.array([max(begins) + t + skew for t, skew in zip(takes_ns, skews_ns, strict=True)]),
    )


@given(
    st.data(),
    st.integers(2, 6),
    st.sampled_from([0, 1_000_000, -1_000_000, 1_000_000_000, -86_400_000_000_000]),
)
def test_the_truth_is_within_the_bound(data: st.DataObject, hosts: int, skew_ns: int) -> None:
    skews = [0, *data.draw(st.lists(st.integers(-abs(skew_ns), abs(skew_ns)),
                                    min_size=hosts - 1, max_size=hosts - 1))]  # fmt: skip
    skews[-1] = skew_ns
    late = st.lists(st.integers(0, 3_000_000), min_size=hosts, max_size=hosts)
    takes = st.lists(st.integers(20_000, 500_000), min_size=hosts, max_size=hosts)
    start = 1_790_000_000_000_000_000
    operations = [
        collective(start + 5_000_000 * n, skews, data.draw(late), data.draw(takes))
        for n in range(12)
    ]
    offsets = clock_offsets(hosts, operations, float("inf"))
    for skew, offset in zip(skews, offsets, strict=True):
        assert offset.problem == ""
        assert abs(offset.offset_ns - skew) <= offset.error_ns + 1
    # Drawn on one clock, nobody leaves before the last one has come.
    shift = np.array([offset.offset_ns for offset in offsets])
    slack = DRIFT * 60_000_000 + 2
    for operation in operations:
        last = (operation.sent_ns - shift).max()
        assert ((operation.heard_ns - shift) >= last - slack).all()


@given(st.floats(-DRIFT / 2, DRIFT / 2), st.integers(1, 60))
def test_clocks_that_drift_stay_within_the_bound(drift: float, seconds: int) -> None:
    operations = []
    for n in range(21):
        at = 1_000_000_000_000 + n * seconds * 50_000_000
        skew = round(drift * (at - 1_000_000_000_000))
        operations.append(collective(at, [0, skew], [0, 0], [50_000, 50_000]))
    (_, offset) = clock_offsets(2, operations, float("inf"))
    assert offset.problem == ""
    for n in (0, 20):
        skew = round(drift * n * seconds * 50_000_000)
        assert abs(offset.offset_ns - skew) <= offset.error_ns + 1


def one_way(many: int) -> list[SharedOperation]:
    """Broadcasts of host 0."""
    return [
        SharedOperation(np.arange(2), np.array([1000 + n, NEVER]), np.array([NEVER, 2000 + n]))
        for n in range(many)
    ]


def problem(operations: list[SharedOperation], limit_ns: float = LIMIT_NS) -> ClockOffset:
    return clock_offsets(2, operations, limit_ns)[1]


def test_evidence_of_one_direction_is_refused() -> None:
    assert "one direction" in problem(one_way(100)).problem


def test_evidence_of_two_one_way_streets_bounds_both_sides() -> None:
    back = [
        SharedOperation(np.arange(2), np.array([NEVER, 1000 + n]), np.array([2000 + n, NEVER]))
        for n in range(8)
    ]
    offset = problem([*one_way(8), *back])
    assert offset.problem == ""
    assert offset.offset_ns == 0


def test_too_few_are_refused_and_one_more_is_enough() -> None:
    operations = [collective(10_000 * n, [0, 500], [0, 0], [50, 50]) for n in range(MIN_MATCHES)]
    assert "fewer than" in problem(operations[1:]).problem
    assert problem(operations).problem == ""


def test_a_bound_above_the_limit_is_refused() -> None:
    operations = [collective(10_000_000 * n, [0, 0], [0, 0], [900_000] * 2) for n in range(20)]
    assert "are allowed" in problem(operations, 100_000.0).problem
    assert problem(operations, 1_000_000.0).problem == ""


def test_a_clock_that_was_set_meanwhile_is_refused() -> None:
    operations = [
        collective(1_000_000 * n, [0, 0 if n < 10 else 10_000_000], [0, 0], [50_000, 50_000])
        for n in range(20)
    ]
    assert "contradicts" in problem(operations).problem


def test_hosts_that_share_nothing_are_connected_through_others() -> None:
    operations = []
    for n in range(MIN_MATCHES):
        at = 1_000_000 * (n + 1)
        for low, high, skew in ((0, 1, 700), (1, 2, -900)):
            whole = collective(at, [0, skew], [0, 0], [5_000, 5_000])
            ahead = 700 if low else 0
            operations.append(
                SharedOperation(
                    np.array([low, high]), whole.sent_ns + ahead, whole.heard_ns + ahead
                )
            )
    offsets = clock_offsets(3, operations, LIMIT_NS)
    assert [round(each.offset_ns, -2) for each in offsets] == [0, 700, -200]
    assert clock_offsets(4, operations, LIMIT_NS)[3].problem
