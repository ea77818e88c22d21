"""Members go first, and as many spares step in as members are gone."""

from __future__ import annotations

import pytest

from relkit.launch.spares.join_step import (
    JoinStep,
    Rendezvous,
    free_places,
    is_short,
    next_step,
)
from relkit.launch.spares.membership import Membership

FOUR = Membership(round=0, members={key: key for key in "abcd"})


def rendezvous(
    node: str,
    participants: str = "",
    waiting: str = "",
    spares: str = "",
    *,
    is_complete: bool = True,
    nodes: tuple[int, int] = (4, 4),
) -> Rendezvous:
    return Rendezvous(
        node, is_complete, frozenset(participants), frozenset(waiting), frozenset(spares), *nodes
    )


def test_the_first_meeting_is_torchs() -> None:
    assert next_step(rendezvous("e", "abcd"), Membership()) is JoinStep.AS_TORCH


@pytest.mark.parametrize("spares", ["", "e", "f", "ef"])
def test_as_long_as_all_members_are_expected_a_spare_waits(spares: str) -> None:
    assert next_step(rendezvous("e", "abcd", spares=spares), FOUR) is JoinStep.WAIT_AS_SPARE


@pytest.mark.parametrize(
    ("participants", "waiting", "is_complete"),
    [("cd", "ab", True), ("", "", False), ("ab", "", False), ("d", "", True)],
)
def test_members_that_are_late_keep_their_places(
    participants: str, waiting: str, is_complete: bool
) -> None:
    state = rendezvous("e", participants, waiting, "e", is_complete=is_complete)
    assert next_step(state, FOUR) is JoinStep.WAIT_AS_SPARE
    for member in "abcd":
        state = rendezvous(member, participants, waiting, "e", is_complete=is_complete)
        assert next_step(state, FOUR) is JoinStep.AS_TORCH


def test_as_many_step_in_as_are_gone() -> None:
    one_gone = FOUR.without("b", "dead")
    steps = [next_step(rendezvous(node, "acd", spares="ef"), one_gone) for node in "ef"]
    assert steps == [JoinStep.STEP_IN, JoinStep.WAIT_AS_SPARE]
    two_gone = one_gone.without("c", "dead")
    steps = [next_step(rendezvous(node, "ad", spares="ef"), two_gone) for node in "ef"]
    assert steps == [JoinStep.STEP_IN, JoinStep.STEP_IN]


@pytest.mark.parametrize(("participants", "waiting"), [("acd", "e"), ("ae", "cd"), ("ac", "de")])
def test_a_place_is_taken_once(participants: str, waiting: str) -> None:
    state = rendezvous("f", participants, waiting, "f", is_complete="e" in waiting)
    assert next_step(state, FOUR.without("b", "dead")) is JoinStep.WAIT_AS_SPARE
    state = rendezvous("e", participants, waiting, "f", is_complete="e" in waiting)
    assert next_step(state, FOUR.without("b", "dead")) is JoinStep.AS_TORCH


def test_who_was_taken_for_dead_and_comes_back_is_a_spare() -> None:
    state = rendezvous("b", "acde")
    replaced = Membership(round=1, members={key: key for key in "acde"})
    assert next_step(state, replaced) is JoinStep.WAIT_AS_SPARE
    # Nobody has come in its place yet.
    assert next_step(rendezvous("b", "acd"), FOUR.without("b", "dead")) is JoinStep.STEP_IN


def test_an_elastic_job_has_room() -> None:
    three = Membership(round=0, members={key: key for key in "abc"})
    state = rendezvous("d", "abc", nodes=(2, 4))
    assert free_places(state, three.expected) == 1
    assert next_step(state, three) is JoinStep.STEP_IN


def test_all_who_can_come_are_there() -> None:
    one_gone = FOUR.without("d", "dead")

    def step(participants: str, **more: object) -> JoinStep:
        state = rendezvous("a", participants, is_complete=False, nodes=(2, 4), **more)  # type: ignore[arg-type]
        return next_step(state, one_gone)

    assert step("abc") is JoinStep.COMPLETE
    # A member is still to come, a spare would be welcome, somebody is about to take part.
    assert step("ab") is JoinStep.AS_TORCH
    assert step("abc", spares="e") is JoinStep.AS_TORCH
    assert step("abc", waiting="e") is JoinStep.AS_TORCH


def test_a_job_is_short_once_too_few_may_still_come() -> None:
    one_gone = FOUR.without("d", "dead").expected
    # Nobody has come back yet, and nobody is gone.
    assert not is_short(rendezvous("a", ""), FOUR.expected)
    assert is_short(rendezvous("a", "abc"), one_gone)
    assert not is_short(rendezvous("a", "abc", waiting="e"), one_gone)
    assert not is_short(rendezvous("a", "abc", nodes=(3, 4)), one_gone)


def test_too_few_are_not_enough() -> None:
    one_gone = FOUR.without("d", "dead")
    state = rendezvous("a", "abc", is_complete=False)
    assert next_step(state, one_gone) is JoinStep.AS_TORCH
    # Whoever is there does not complete what is complete.
    state = rendezvous("a", "abc", nodes=(2, 4))
    assert next_step(state, one_gone) is JoinStep.AS_TORCH
