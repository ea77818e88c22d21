"""What is kept of a job's past: a fixed room, however long it runs; limits that fit the past."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relkit.hang.columns.operations import kind_of_operation
from relkit.hang.detection.detector import Look
from relkit.hang.detection.flights import Flight
from relkit.hang.suspicion.limits import CAPACITY, FLOOR_S, MAX_KINDS, History, Limits
from relkit.hook.model import Communicator, HookState, Op, OpKind

SECOND = 10**9


def flight(age_s: float, *, start: int = 1, name: str = "allreduce", size: int = 64) -> Flight:
    op = Op(name, OpKind.COLLECTIVE, 3, 0, size, 7, start * SECOND)
    state = HookState(
        pid=1, start_ticks=1, rank=0, local_rank=0, world_size=2, now_ns=0, boot_to_unix_ns=0,
        started=1, finished=0, last_finish_ns=0, in_flight=(op,),
        communicators=(Communicator(0, 0, 2, "0", 3),),
    )  # fmt: skip
    return Flight(age_s, 0, state, op)


@given(st.lists(st.floats(0.0, 1e6)))
def test_a_limit_is_above_the_floor_and_above_all_that_has_been(past: list[float]) -> None:
    history = History()
    for duration_s in past:
        history.add(duration_s)
    assert history.limit_s >= FLOOR_S
    assert history.limit_s >= 1.5 * max(past, default=0.0)
    assert history.usual_s <= history.longest_s
    assert len(history._newest) <= CAPACITY


def test_one_long_pause_of_many_is_not_the_usual() -> None:
    history = History()
    for _ in range(30):
        history.add(1.0)
    history.add(120.0)
    assert history.usual_s == 1.0
    history.forget_the_longest()
    assert history.limit_s == FLOOR_S


def test_only_the_newest_durations_are_kept() -> None:
    history = History()
    for number in range(10 * CAPACITY):
        history.add(float(number))
    assert len(history._newest) == CAPACITY
    assert history.usual_s > 9 * CAPACITY


def test_kinds_differ_by_name_group_and_payload() -> None:
    flights = [flight(1, name=name, size=size) for name in "ab" for size in (4, 5, 1 << 20)]
    kinds = {kind_of_operation(each.op, each.state) for each in flights}
    assert len(kinds) == 4


def test_a_job_that_calls_ever_new_things_takes_no_more_room() -> None:
    limits = Limits()
    for number in range(2000):
        limits.learn(Look(number, 1.0, (flight(20.0, start=number, name=f"op{number}"),)))
    assert len(limits.kinds) <= MAX_KINDS + 1
    assert len(limits.flying) == 1
    # Those that came too late share what is known of one another.
    assert limits.overdue(Look(2000, 1.0, (flight(60.0, name="new"),))) is None
    assert limits.overdue(Look(2000, 1.0, (flight(65.0, name="new"),))) is not None


def test_what_is_never_seen_in_flight_took_less_than_the_time_between_two_looks() -> None:
    limits = Limits()
    for number in range(20):
        limits.learn(Look(number, 0.5, (), 0.0, 0.1))
    late = limits.overdue(Look(20, 0.5, (flight(11.0),)))
    assert late is not None
    assert late.longest_s == pytest.approx(0.5)


def test_the_oldest_that_is_overdue_comes_first() -> None:
    limits = Limits()
    limits.learn(Look(0, 1.0))
    flights = (flight(11.0), flight(14.0, start=2), flight(3.0, start=3))
    late = limits.overdue(Look(1, 1.0, flights))
    assert late is not None
    assert [each.age_s for each in late.flights] == [14.0, 11.0]
    assert late.age_s == 14.0
