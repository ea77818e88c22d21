"""Who answered and who is gone, whatever lines come."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relkit.fleet.roster import Roster
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
