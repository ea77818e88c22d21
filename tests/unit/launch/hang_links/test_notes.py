"""Notes about links: what is sent is read, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relkit.launch.hang.links import notes
from relkit.launch.hang.links.notes import Ask, BadNote, Call, Listening, PairResult

NONCE = bytes(range(16))
READERS: tuple[Callable[[bytes], object], ...] = (
    lambda note: notes.read_ask(note, 8),
    notes.read_listening,
    notes.read_go,
    notes.read_done,
)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["0", "1", "27", "-1", "nodes", "nonce", "name", "address", "ports"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


def test_what_is_sent_is_read() -> None:
    ask = Ask((0, 3, 7), NONCE)
    assert notes.read_ask(ask.encode(), 8) == ask
    listening = Listening("h1", "10.0.0.1", {0: 4000, 27: 65535})
    assert notes.read_listening(listening.encode()) == listening
    refusing = Listening("h1", problem="it runs without --on-hang-netcheck")
    assert notes.read_listening(refusing.encode()) == refusing
    calls = {0: Call("10.0.0.1", 4000, 0), 27: Call("fe80::1", 1, 6)}
    assert notes.read_go(notes.encode_go(calls)) == calls
    assert notes.read_go(notes.encode_go({})) == {}
    results = {0: PairResult(940.5, 0.1), 3: PairResult(failure="no answer", is_cut=True)}
    assert notes.read_done(notes.encode_done(results)) == results


@pytest.mark.parametrize(
    ("nodes", "nonce"),
    [
        ([0], NONCE.hex()),
        ([], NONCE.hex()),
        (list(range(9)), NONCE.hex()),
        ([0, 8], NONCE.hex()),
        ([-1, 0], NONCE.hex()),
        ([1, 0], NONCE.hex()),
        ([0, 0], NONCE.hex()),
        ([0, True], NONCE.hex()),
        ([0, 1.0], NONCE.hex()),
        ("01", NONCE.hex()),
        ([0, 1], NONCE.hex()[2:]),
        ([0, 1], "x" * 32),
        ([0, 1], 5),
        ([0, 1], None),
    ],
)
def test_requests_that_are_none(nodes: object, nonce: object) -> None:
    with pytest.raises(BadNote):
        notes.read_ask(json.dumps({"nodes": nodes, "nonce": nonce}).encode(), 8)


@pytest.mark.parametrize(
    "place",
    [
        {"name": "-rf /", "address": "10.0.0.1", "ports": {"0": 4000}},
        {"name": 7, "address": "10.0.0.1", "ports": {"0": 4000}},
        {"name": "h1", "address": "host.example", "ports": {"0": 4000}},
        {"name": "h1", "address": "", "ports": {"0": 4000}},
        {"name": "h1", "address": "10.0.0.1", "ports": {"0": 0}},
        {"name": "h1", "address": "10.0.0.1", "ports": {"0": 65536}},
        {"name": "h1", "address": "10.0.0.1", "ports": {"0": "4000"}},
        {"name": "h1", "address": "10.0.0.1", "ports": {"0": True}},
        {"name": "h1", "address": "10.0.0.1", "ports": {"28": 4000}},
        {"name": "h1", "address": "10.0.0.1", "ports": [4000]},
    ],
)
def test_places_that_are_none(place: object) -> None:
    with pytest.raises(BadNote):
        notes.read_listening(json.dumps(place).encode())


@pytest.mark.parametrize(
    "call",
    [
        ["host.example", 4000, 0],
        ["10.0.0.1", 0, 0],
        ["10.0.0.1", 4000, 8],
        ["10.0.0.1", 4000, -1],
        ["10.0.0.1", 4000, 0.5],
        ["10.0.0.1", 4000],
        {"address": "10.0.0.1"},
    ],
)
def test_calls_that_are_none(call: object) -> None:
    with pytest.raises(BadNote):
        notes.read_go(json.dumps({"0": call}).encode())


@pytest.mark.parametrize(
    "result",
    [
        "[1e400, 0.1, \"\", false]",
        "[NaN, 0.1, \"\", false]",
        "[-1, 0.1, \"\", false]",
        "[1e9, 0.1, \"\", false]",
        "[940, NaN, \"\", false]",
        "[940, 0.1, \"no answer\", false]",
        "[0, 0.1, \"\", false]",
        "[940, 0.1, \"\", true]",
        "[true, 0.1, \"\", false]",
        "[940, 0.1, \"\", 0]",
        "[940, 0.1, \"\"]",
        "940",
    ],
)  # fmt: skip
def test_results_that_are_none(result: str) -> None:
    with pytest.raises(BadNote):
        notes.read_done(f'{{"0": {result}}}'.encode())


def test_words_of_others_are_cut_and_cleaned() -> None:
    note = {"0": [0, 0, "\x1b[31m" + "x" * 5000, False]}
    (result,) = notes.read_done(json.dumps(note).encode()).values()
    assert len(result.failure) <= 400
    assert "\x1b" not in result.failure


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize(
    "note", [b"", b"\xff\xfe", b"[" * 100_000, b"7", b"[]", b'{"0": 1}', b" " * (65 << 10) + b"{}"]
)
def test_what_is_no_note(read: Callable[[bytes], object], note: bytes) -> None:
    with pytest.raises(BadNote):
        read(note)


@given(st.binary(max_size=200) | _JSON.map(lambda plain: json.dumps(plain).encode()))
def test_any_note_is_read_or_refused(note: bytes) -> None:
    for read in READERS:
        with suppress(BadNote):
            read(note)
