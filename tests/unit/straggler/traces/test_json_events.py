"""Traces event by event: whole, cut anywhere, damaged, packed, in pieces of any size."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relkit.errors import BadInputFile
from relkit.straggler.traces import json_events
from relkit.straggler.traces.json_events import TraceReader
from relkit.straggler.traces.trace_events import Kind, TraceEvents

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
EVENTS = st.lists(st.dictionaries(st.text(max_size=5), VALUES, max_size=4), max_size=8)
INDENT = st.sampled_from([None, 2])


def read(path: Path) -> tuple[list[dict[str, Any]], TraceReader]:
    reader = TraceReader(path)
    return list(reader), reader


@pytest.fixture(params=[7, 1 << 20])
def pieces(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_events, "_PIECE_BYTES", request.param)


@pytest.mark.parametrize("number", ["0.0", "-12.5", "1e5", "2E-7", "1.5e+300", "-0", "null"])
@pytest.mark.parametrize("size", range(1, 5))
def test_a_number_in_several_pieces_is_one(
    number: str, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.json"
    path.write_text(f'{{"distributedInfo":{number},"traceEvents":[{{"ph":"X"}},{number}]}}')
    monkeypatch.setattr(json_events, "_PIECE_BYTES", size)
    got, reader = read(path)
    assert (got, reader.cut) == ([{"ph": "X"}], "")
    assert reader.properties == {"distributedInfo": json.loads(number)}


@given(events=EVENTS, before=VALUES, indent=INDENT, packed=st.booleans(), size=st.integers(1, 60))
def test_each_event_is_read(
    events: list[dict[str, Any]], before: object, indent: int | None, packed: bool, size: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:  # fmt: skip
    path = tmp_path_factory.mktemp("trace") / "a.json"
    document = {"distributedInfo": before, "traceEvents": events, "other": before, "host_name": "n"}
    data = json.dumps(document, indent=indent, ensure_ascii=False).encode("utf-8", "replace")
    path.write_bytes(gzip.compress(data) if packed else data)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(json_events, "_PIECE_BYTES", size)
        got, reader = read(path)
    assert got == json.loads(data)["traceEvents"]
    assert reader.cut == ""
    assert reader.damaged == 0
    assert reader.properties == {"distributedInfo": json.loads(data)["other"], "host_name": "n"}


@given(events=EVENTS, share=st.floats(0.0, 1.0), indent=INDENT, is_list=st.booleans())
def test_what_is_cut_is_read_as_far_as_it_goes(
    events: list[dict[str, Any]], share: float, indent: int | None, is_list: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:  # fmt: skip
    path = tmp_path_factory.mktemp("trace") / "a.json"
    document: object = events if is_list else {"traceEvents": events}
    data = json.dumps(document, indent=indent).encode()
    path.write_bytes(data[: max(1, int(share * (len(data) - 1)))])
    got, reader = read(path)
    assert got == events[: len(got)]
    assert reader.cut


@pytest.mark.usefixtures("pieces")
def test_a_damaged_event_is_passed_over_and_counted(tmp_path: Path) -> None:
    events = [{"ph": "X", "name": f"n{number}", "args": {"a": 1}} for number in range(50)]
    text = json.dumps({"traceEvents": events, "host_name": "n"}, indent=2)
    text = text.replace('"name": "n7"', '"name": "n7', 1).replace('"n30",', '"n30" oh no', 1)
    path = tmp_path / "a.json"
    path.write_text(text)
    got, reader = read(path)
    names = {event["name"] for event in got}
    assert len(names & {f"n{number}" for number in range(50)}) >= 46
    assert reader.damaged >= 1
    assert reader.cut == ""
    assert reader.properties == {"host_name": "n"}


@pytest.mark.usefixtures("pieces")
@pytest.mark.parametrize(
    "text", ["", "x", "{", '{"a": 1', "[", '{"traceEvents": [' + "[" * 5000, '"a"', "{}", "nul"]
)
def test_what_is_no_trace(text: str, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    try:
        got, _ = read(path)
    except BadInputFile:
        return
    assert got == []


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    import os

    os.mkfifo(tmp_path / "a.json")
    with pytest.raises(BadInputFile, match="pipe"):
        read(tmp_path / "a.json")


@given(
    st.dictionaries(
        st.sampled_from(["ph", "cat", "name", "ts", "dur", "pid", "tid", "args"]),
        st.one_of(VALUES, st.sampled_from(["X", "cpu_op", "kernel", "ProfilerStep#3", math.inf])),
    )
)
def test_any_event_is_taken_or_passed_over(event: dict[str, Any]) -> None:
    events = TraceEvents()
    events.add(event)
    columns = events.of(*Kind)
    assert len(columns) == len(events) <= 1
