"""Lines between controller and agents."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from relkit.fleet import wire

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.text(max_size=9), PLAIN, max_size=5))
def test_what_is_encoded_is_one_line_and_decodes(message: dict[str, Any]) -> None:
    line = wire.encode(message)
    assert line.count(b"\n") == 1
    assert wire.decode(line) == message


@given(st.text(min_size=1, max_size=3000), st.integers(300, 1100))
def test_parts_are_short_and_join_to_the_whole(text: str, limit: int) -> None:
    message = {"node": "n1", "op": "facts", "text": text}
    reassembler = wire.Reassembler()
    whole = []
    for part in wire.in_parts(wire.encode(message), "n1", limit):
        assert len(part) <= limit
        # Another node's parts in between do no harm.
        assert reassembler.feed({"node": "n2", "part": "{", "last": False}) is None
        whole.append(reassembler.feed(wire.decode(part)))
    assert whole[-1] == message
    assert all(item is None for item in whole[:-1])


@pytest.mark.parametrize(
    "line", [b"", b"{", b"[]", b"1", b"null", b"\xff\xfe", b"[" * 100_000, b'{"a":' * 50_000]
)
def test_what_is_no_object_is_refused(line: bytes) -> None:
    with pytest.raises(wire.BadLine):
        wire.decode(line)


def test_a_message_too_long_is_refused_by_its_sender() -> None:
    with pytest.raises(wire.BadLine, match="at most"):
        wire.encode({"text": "x" * wire.MAX_LINE_BYTES})


def test_endless_parts_are_refused_and_blamed() -> None:
    reassembler = wire.Reassembler()
    part = {"node": "n3", "part": "x" * 500_000, "last": False}
    reassembler.feed(part)
    reassembler.feed(part)
    with pytest.raises(wire.BadLine) as caught:
        reassembler.feed(part)
    assert caught.value.node == "n3"


@given(st.binary(max_size=400))
def test_bytes_from_elsewhere_are_shown_without_control_characters(raw: bytes) -> None:
    shown = wire.printable(raw)
    assert shown.isprintable()
    assert len(shown) <= 100 * 6 + 3
    assert json.dumps(shown)
