"""Who answered and who is gone, whatever lines come."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relkit.fleet.roster import CLOCK_ID, Roster
from relkit.fleet.wire import PROTOCOL, BadLine


def line(node: str, op: str, **fields: object) -> bytes:
    return json.dumps({"node": node, "op": op, **fields}).encode()


def hello(node: str) -> bytes:
    return line(node, "hello", protocol=PROTOCOL, version="1")


ODD = st.one_of(
    st.binary(max_size=60),
    st.builds(
        lambda node, op, more: json.dumps({"node": node, "op": op, **more}).encode(),
        st.sampled_from(["a", "b", "zz", "", 3, None]),
        st.sampled_from(["hello", "gone", "pong", "edge", "", 5, None]),
        st.dictionaries(
            st.sampled_from(["id", "unix_s", "part", "last", "protocol", "version"]),
            st.sampled_from([-1, 1, 0.5, "x", "{}", True, None, [], {}, float("nan")]),
        ),
    ),
)


@pytest.mark.parametrize("sender", ["", "a"])
@given(lines=st.lists(ODD, max_size=12))
def test_no_line_does_more_than_end_its_node(sender: str, lines: list[bytes]) -> None:
    roster = Roster(["a", "b"])
    roster.accept(hello("b"), "b")
    blamed = set()
    for item in lines:
        try:
            roster.accept(item, sender)
        except BadLine as error:
            blamed.add(sender or error.node)
            roster.fail(sender or error.node, str(error))
    assert blamed <= {"a", "b"}
    if sender:
        assert roster.live in (["b"], ["b", "a"])
    while taken := roster.take():
        assert taken[0] in ("a", "b")


def test_an_agent_that_floods_is_blamed() -> None:
    roster = Roster(["a", "b"])
    roster.accept(hello("a"))
    roster.accept(hello("b"))
    for _ in range(33):
        roster.accept(line("a", "edge", text="x" * 500_000))
    with pytest.raises(BadLine, match="not requested") as caught:
        roster.accept(line("a", "edge", text="x" * 500_000))
    assert caught.value.node == "a"
    taken = roster.take()
    assert taken is not None
    roster.accept(line("a", "edge", text="x" * 400_000))


def test_gone_is_told_once_and_nothing_after_it() -> None:
    roster = Roster(["a"])
    roster.accept(hello("a"), "a")
    roster.accept(line("a", "edge"), "a")
    roster.fail("a", "first")
    roster.fail("a", "second")
    with contextlib.suppress(BadLine):
        roster.accept(line("a", "edge"), "a")
    taken = [roster.take(), roster.take(), roster.take()]
    assert [item[1]["op"] for item in taken if item] == ["edge", "gone"]
    assert taken[1] is not None
    assert taken[1][1]["detail"] == "first"


def test_an_agent_that_speaks_for_another_node_is_not_believed() -> None:
    """Not even where the name of one begins with the name of the other."""
    roster = Roster(["n1", "n10"])
    roster.accept(hello("n1"), "n1")
    roster.accept(hello("n10"), "n10")
    for sender, claimed in (("n1", "n10"), ("n10", "n1")):
        with pytest.raises(BadLine, match="another node's"):
            roster.accept(line(claimed, "edge"), sender)
    assert roster.take() is None


def test_only_an_agent_of_our_protocol_has_answered() -> None:
    roster = Roster(["a", "b", "c"])
    roster.accept(hello("a"), "a")
    roster.accept(line("b", "hello", protocol=PROTOCOL + 1, version="9"), "b")
    roster.accept(line("c", "hello", version="0"), "c")
    assert roster.live == ["a"]
    assert "relkit 9 there speaks protocol" in roster.answers()["b"].detail
    assert roster.ended == {"b", "c"}


@pytest.mark.parametrize("op", ["gone", "hello"])
def test_an_agent_cannot_declare_itself_gone_or_join_twice(op: str) -> None:
    roster = Roster(["a"])
    roster.accept(hello("a"), "a")
    with pytest.raises(BadLine, match="unexpected"):
        roster.accept(line("a", op, protocol=PROTOCOL), "a")
    assert roster.take() is None


def test_a_clock_is_held_against_the_middle_of_the_round_trip(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    roster = Roster(["a"])
    roster.accept(hello("a"), "a")
    were_open = roster.clocks_open
    roster.ping_sent_s = 100.0
    monkeypatch.setattr("time.time", lambda: 101.0)
    roster.accept(line("a", "pong", id=CLOCK_ID, unix_s=107.5), "a")
    assert (were_open, roster.clocks_open) == (True, False)
    # At 100.5 of ours it was 107.5 there: ahead by 7.
    assert roster.answers()["a"].clock_skew_s == 7.0
    assert roster.take() is None
