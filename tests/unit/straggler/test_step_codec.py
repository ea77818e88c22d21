"""Steps on the way between nodes: what was sent arrives, and nothing else is believed."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relkit.errors import BadDump
from relkit.straggler.edge_traffic import EdgeTraffic
from relkit.straggler.host_load import HostLoad
from relkit.straggler.step_record import StepRecord
from relkit.straggler.transport.step_codec import Note, decode, encode
from tests.unit.straggler.step_records import records


def plain(one: StepRecord) -> list[object]:
    found: list[object] = []
    for field in dataclasses.fields(one):
        value = getattr(one, field.name)
        if field.name == "collectives":
            value = value.tolist()
        elif field.name == "parts":
            value = ["nan" if math.isnan(seconds) else np.float32(seconds) for seconds in value]
        found.append(value)
    return found


def test_a_note_comes_back() -> None:
    sent = records(range(20), 4)
    network = (EdgeTraffic("10.0.0.1", "10.0.0.2", 1 << 40, 0.5, 3, 0.001),)
    note = decode(encode(Note(7, tuple(sent), ("x",), network), "a", 1 << 30), 4)
    assert (note.number, note.notes, note.sent, note.host) == (7, ("x",), network, "a")
    assert [plain(one) for one in note.records] == [plain(one) for one in sent]


def test_an_empty_note_comes_back() -> None:
    assert decode(encode(Note(0, ()), "a"), 1) == Note(0, (), host="a")
    load = HostLoad(64, 3.5, 2.25)
    assert decode(encode(Note(0, (), load=load), "a"), 1).load == load


def test_beyond_its_budget_a_note_has_the_collectives_that_other_nodes_send_too() -> None:
    kept = []
    # Two nodes look at different times, and so have other steps to tell.
    for first in (100, 130):
        sent = tuple(one for one in records(range(first + 300), 8) if one.step >= first)
        data = encode(Note(0, sent), "a", 110 << 10)
        found = decode(data, 8).records
        assert len(found) == len(sent)
        assert len(data) < 2 * (160 << 10)
        kept.append({one.step for one in found if len(one.collectives)})
        # Whole steps only.
        assert sum(len(one.collectives) > 0 for one in found) == 8 * len(kept[-1])
    shared = {step for step in set.union(*kept) if 130 <= step < 400}
    assert 20 < len(shared) < 270
    assert len(kept[0] & kept[1]) > 0.6 * len(shared)


def test_a_rank_that_the_job_does_not_have_is_refused() -> None:
    data = encode(Note(0, tuple(records([0], 4))), "a")
    with pytest.raises(BadDump):
        decode(data, 3)


@pytest.mark.parametrize(
    "odd",
    [EdgeTraffic("a", "b", -1, 0.0, 0, 0.0), EdgeTraffic("a", "b", 1, -0.5, 0, 0.0),
     EdgeTraffic("a", "b", 1, float("nan"), 0, 0.0), EdgeTraffic("a", 5, 1, 0.0, 0, 0.0)],  # type: ignore[arg-type]
)  # fmt: skip
def test_traffic_that_cannot_be_is_refused(odd: EdgeTraffic) -> None:
    with pytest.raises(BadDump):
        decode(encode(Note(0, (), (), (odd,)), "a"), 4)


@given(st.binary(max_size=300))
def test_any_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(BadDump):
        decode(data, 4)


@given(st.data())
def test_a_note_with_a_byte_changed_is_refused_or_whole(data: st.DataObject) -> None:
    good = bytearray(encode(Note(3, tuple(records([0, 1], 2))), "a"))
    place = data.draw(st.integers(0, len(good) - 1))
    good[place] ^= data.draw(st.integers(1, 255))
    try:
        note = decode(bytes(good), 2)
    except BadDump:
        return
    assert all(one.rank < 2 for one in note.records)
