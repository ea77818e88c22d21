"""Operations in flight behave as a sequence of objects, however they came."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from relkit.hang.detection.flights import Flight, Flights
from relkit.hook.model import Communicator, HookState, Op, OpKind


def op_of(number: int) -> Op:
    return Op("allreduce", OpKind.COLLECTIVE, number, 0, 8, 70, number, 0)


STATE = HookState(10, 1, 0, 0, 1, 99, 0, 1, 0, 0, communicators=(Communicator(0, 0, 1, "0"),))


@given(st.integers(0, 6), st.slices(6))
def test_a_slice_has_those_that_a_list_has(count: int, part: slice) -> None:
    made = [Flight(float(n), n, STATE, op_of(n)) for n in range(count)]
    flights = Flights.of(made)
    assert list(flights) == made
    assert list(flights[part]) == made[part]
    assert Flights.of(flights) is flights
    assert [flights[place] for place in range(-count, count)] == made * 2
