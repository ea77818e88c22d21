"""What a rank says of itself: when its loop is left, and what it can give then."""

from __future__ import annotations

import pytest

from relkit.ttp.command_queue import CommandQueue
from relkit.ttp.messages import Discard
from relkit.ttp.plan import Survivor
from relkit.ttp.rank_state import RankState, TrainingInterrupted


def test_a_step_from_its_gradients_to_its_commit() -> None:
    state = RankState(3, 7)
    assert state.survivor() == Survivor(3, 7)
    state.phase("forward")
    state.gradients_ready()
    assert state.survivor() == Survivor(3, 7, ready=True)
    state.begin_update(previous=True)
    state.end_update(8)
    assert state.survivor() == Survivor(3, 8, previous=True)


def test_the_gate_is_shut_by_a_fault_and_the_gradients_stay() -> None:
    state = RankState(0, 7)
    state.gradients_ready()
    state.fault = True
    with pytest.raises(TrainingInterrupted) as left:
        state.begin_update()
    state.park(left.value)
    assert state.survivor() == Survivor(0, 7, ready=True)
    with pytest.raises(TrainingInterrupted):
        state.phase("gather")
    with pytest.raises(TrainingInterrupted):
        state.gradients_ready()


def test_what_was_reduced_during_a_fault_is_not_relied_on() -> None:
    state = RankState(0, 7)
    state.fault = True
    with pytest.raises(TrainingInterrupted):
        state.gradients_ready()
    assert not state.survivor().ready


def test_an_update_that_was_left_in_its_middle_is_of_no_step() -> None:
    state = RankState(0, 7)
    state.gradients_ready()
    state.begin_update()
    state.park(ValueError("bad"))
    survivor = state.survivor()
    assert (survivor.usable, survivor.reason) == (False, "ValueError in the update")
    assert not survivor.can_give(7)
    assert not survivor.can_give(8)


def test_it_stops_before_the_step_that_it_was_asked_to_stop_before() -> None:
    state = RankState(0, 7)
    state.pause_at = 8
    state.phase("forward")
    state.gradients_ready()
    state.begin_update()
    state.end_update(8)
    # The line of the step is still written, and its checkpoint.
    state.phase("save")
    with pytest.raises(TrainingInterrupted):
        state.phase("forward")
    with pytest.raises(TrainingInterrupted):
        state.gradients_ready()


def test_nobody_takes_the_place_of_a_thread_in_its_update() -> None:
    state = RankState(0, 7)
    state.begin_update()
    assert not state.replace_thread()
    state.end_update(8)
    assert state.replace_thread()
    assert state.commands.is_idle


def test_a_thread_is_idle_when_it_is_parked_and_has_done_its_orders() -> None:
    commands = CommandQueue()
    assert not commands.is_idle
    commands.give(Discard(1))
    commands.park()
    assert not commands.wait_idle(0.0)
    assert commands.next() == Discard(1)
    commands.give(Discard(2))
    commands.done()
    assert not commands.is_idle
    commands.next()
    commands.done()
    assert commands.wait_idle(0.0)
    assert not commands.replace_thread()
    commands.unpark()
    assert not commands.is_idle
