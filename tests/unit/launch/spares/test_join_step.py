"""Members go first, and as many spares step in as members are gone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relkit.launch.spares.join_step import (
    JoinStep,
    Rendezvous,
    free_places,
    is_short,
    next_step,
    surplus,
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
    unit: int = 1,
) -> Rendezvous:
    lists = (frozenset(participants), frozenset(waiting), frozenset(spares))
    return Rendezvous(node, is_complete, *lists, *nodes, unit)


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


TWO = Membership(round=0, members={key: key for key in "ab"}, host="a")


def test_nodes_step_in_by_whole_units() -> None:
    def steps(spares: str, nodes: tuple[int, int] = (2, 6)) -> list[JoinStep]:
        state = [rendezvous(n, "ab", spares=spares, nodes=nodes, unit=2) for n in spares]
        return [next_step(each, TWO) for each in state]

    come, wait = JoinStep.STEP_IN, JoinStep.WAIT_AS_SPARE
    assert steps("c") == [wait]
    assert steps("cd") == [come, come]
    assert steps("cde") == [come, come, wait]
    assert steps("cdef") == [come] * 4
    assert steps("cdef", (2, 4)) == [come, come, wait, wait]
    # One of them is on the list already.
    state = rendezvous("d", "ab", waiting="c", spares="d", nodes=(2, 6), unit=2)
    assert next_step(state, TWO) is come


def test_who_is_left_over_takes_the_place_of_a_lost_node() -> None:
    state = rendezvous("e", "abc", spares="e", nodes=(2, 6), unit=2)
    assert next_step(state, FOUR.without("d", "dead")) is JoinStep.STEP_IN


def test_the_job_shrinks_to_whole_units_at_once() -> None:
    one_gone = FOUR.without("b", "dead")
    state = rendezvous("a", "acd", is_complete=False, nodes=(2, 4), unit=2)
    assert next_step(state, one_gone) is JoinStep.COMPLETE
    assert surplus(state, one_gone) == ("d",)
    # With another one that waits it stays as large as it was.
    state = rendezvous("a", "acd", spares="e", is_complete=False, nodes=(2, 4), unit=2)
    assert next_step(state, one_gone) is JoinStep.AS_TORCH


def test_members_and_the_host_of_the_store_stay() -> None:
    state = rendezvous("a", "abc", nodes=(2, 4), unit=2)
    assert surplus(state, TWO) == ("c",)
    members = Membership(round=0, members={"b": "b", "c": "c"})
    assert surplus(state, members) == ("a",)
    assert surplus(state, members.hosted_by("a")) == ("c",)
    assert surplus(rendezvous("a", "abcd", nodes=(2, 4), unit=2), FOUR) == ()


KEYS = "abcdefghijkl"


@given(st.data())
def test_whatever_comes_and_goes_the_job_is_whole_units(data: st.DataObject) -> None:
    unit = data.draw(st.integers(1, 4))
    least, more = data.draw(st.integers(1, 2)), data.draw(st.integers(0, 2))
    nodes = (least * unit, (least + more) * unit)
    present = data.draw(st.sets(st.sampled_from(KEYS), min_size=nodes[0], max_size=nodes[1]))
    waits = set(KEYS) - present
    whole = len(present) - len(present) % unit
    members = sorted(present)[:whole]
    membership = Membership(round=0, members={key: key for key in members}, host=members[0])
    spares = data.draw(st.sets(st.sampled_from(sorted(waits)))) if waits else set()
    gone = data.draw(st.sets(st.sampled_from(members[1:]))) if len(members) > 1 else set[str]()
    for key in gone:
        membership = membership.without(key, "dead")
    here = set(members) - gone
    # One after the other, each with what those before it have done.
    while True:
        came = {
            key
            for key in spares
            if next_step(
                rendezvous(key, "".join(here), "", "".join(spares), nodes=nodes, unit=unit),
                membership,
            )
            is JoinStep.STEP_IN
        }
        if not came:
            break
        here.add(min(came))
        spares.remove(min(came))
    state = rendezvous(members[0], "".join(here), "", "".join(spares),
                       is_complete=False, nodes=nodes, unit=unit)  # fmt: skip
    met = next_step(state, membership) is JoinStep.COMPLETE
    assert met == (len(here) >= nodes[0])
    if met:
        left = here - set(surplus(state, membership))
        assert len(left) % unit == 0
        assert nodes[0] <= len(left) <= nodes[1]
        assert members[0] in left
        # Nobody waits who would make the job larger.
        others = len(spares) + len(here) - len(left)
        assert len(left) == nodes[1] or others < unit
