"""Which nodes are members, which are gone, and what is said of it."""

from __future__ import annotations

import json

import pytest

from relkit.launch.spares.membership import Membership, decode

NAMES = {"ka": "a", "kb": "b", "kc": "c"}


def two_met() -> Membership:
    return Membership(names=NAMES).met(3, {"ka", "kb"}, NAMES.keys())


def test_the_first_meeting_changes_nothing() -> None:
    membership = two_met()
    assert (membership.round, membership.members) == (3, {"ka": "a", "kb": "b"})
    assert membership.changes == ()
    assert membership.expected == {"ka", "kb"}


def test_who_is_gone_is_not_expected_and_the_first_reason_counts() -> None:
    membership = two_met().without("kb", "cut\x1b[31m off").without("kb", "another")
    assert membership.expected == {"ka"}
    assert membership.gone == {"kb": "cut\u241b[31m off"}
    assert membership.lost == {"b": "cut\u241b[31m off"}
    assert two_met().lost == {}
    assert two_met().without("kc", "no member") == two_met()


def test_a_spare_takes_a_place() -> None:
    membership = two_met().without("kb", "dead").met(4, {"ka", "kc"}, {"ka", "kc"})
    assert membership.changes == ("node c takes the place of node b (dead)",)
    assert membership.names == {"ka": "a", "kc": "c"}
    assert membership.gone == {}
    assert membership.expected == {"ka", "kc"}


def test_fewer_and_more_nodes_are_named() -> None:
    fewer = two_met().without("kb", "dead").met(4, {"ka"}, NAMES.keys())
    assert fewer.changes == ("the job goes on without node b (dead)",)
    assert fewer.met(5, {"ka", "kc"}, NAMES.keys()).changes == ("node c joins the job",)
    assert two_met().met(4, {"ka"}, NAMES.keys()).changes[0].endswith("(it left without a word)")


def test_the_most_restarts_count() -> None:
    membership = Membership().restarted(2).restarted(1)
    assert membership.restarts == 2
    assert membership.met(0, {"ka"}, {"ka"}).restarts == 2


def test_failures_in_a_row_begin_on_one_node() -> None:
    membership = two_met()
    assert membership.failures_in_a_row("") == 0
    for count in (1, 2, 3):
        failed = membership.failed_first("kb").failed_first("ka")
        assert failed.failures_in_a_row("kb") == count
        assert failed.failures_in_a_row("ka") == 0
        membership = failed.met(3 + count, {"ka", "kb"}, NAMES.keys())
        assert membership.failures_in_a_row("kb") == 0
    # Nodes that meet without a failure change nothing, and one on another node ends the row.
    again = membership.met(9, {"ka", "kb"}, NAMES.keys())
    assert again.failed_first("kb").failures_in_a_row("kb") == 4
    other = again.failed_first("ka").met(10, {"ka", "kb"}, NAMES.keys())
    assert other.failed_first("kb").failures_in_a_row("kb") == 1
    assert again.failed_first("kb", anew=True).failures_in_a_row("kb") == 1
    assert again.failed_first("kc") == again


def test_what_fails_because_a_node_is_lost_counts_for_nobody() -> None:
    once = two_met().failed_first("ka").met(4, {"ka", "kb"}, NAMES.keys())
    assert once.without("kb", "dead").failed_first("ka").failures_in_a_row("ka") == 0
    # The other one is seen to be dead only later.
    later = once.failed_first("ka").without("kb", "dead").met(5, {"ka", "kc"}, NAMES.keys())
    assert later.failed_first("ka").failures_in_a_row("ka") == 2


def test_it_survives_its_way_through_the_store() -> None:
    membership = two_met().without("kb", "dead").named("kd", "d").restarted(2).hosted_by("ka")
    assert decode(membership.encode()) == membership
    changed = membership.met(4, {"ka", "kd"}, {"ka", "kd"})
    assert decode(changed.encode()) == changed


@pytest.mark.parametrize(
    "text", [None, 7, "", "[]", "{", "{}", '{"round": 0, "restarts": true, "row": 0}']
)
def test_what_is_no_membership_is_an_empty_one(text: object) -> None:
    assert decode(text) == Membership()


def test_names_that_are_none_are_left_out() -> None:
    plain = json.loads(two_met().encode())
    plain["members"]["kb"] = "\x1b[2J"
    plain["gone"] = ["no", "map"]
    membership = decode(json.dumps(plain))
    assert membership.members == {"ka": "a"}
    assert membership.gone == {}
    # Whose name cannot be shown is not known, and has not been lost either.
    plain["gone"] = {"kb": "dead"}
    assert decode(json.dumps(plain)).lost == {}
