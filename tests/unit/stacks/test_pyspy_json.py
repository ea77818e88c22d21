"""py-spy's JSON as its versions and those of CPython make it."""

from __future__ import annotations

import json

import pytest

from relkit.errors import CaptureFailed
from relkit.stacks.engines.pyspy_json import parse


def _frame(name: str, **fields: object) -> dict[str, object]:
    plain = {"name": name, "filename": "/job/a.py", "module": None, "line": 3}
    return {**plain, **fields}


def _dump(*frames: dict[str, object]) -> bytes:
    thread = {"thread_id": 9, "os_thread_id": 5, "thread_name": "MainThread", "frames": frames}
    return json.dumps([thread]).encode()


# What py-spy 0.4.3 was seen to say of "outer calls inner" on each CPython, inner first.
@pytest.mark.parametrize(
    ("inner", "outer", "entries"),
    [
        ((True, False), (True, True), [True, True]),  # 3.10
        ((False, False), (True, True), [False, True]),  # 3.11
        ((False, False), (False, True), [False, True]),  # 3.12, 3.13
    ],
)
def test_where_an_evaluation_begins(
    inner: tuple[bool, bool], outer: tuple[bool, bool], entries: list[bool]
) -> None:
    frames = [
        _frame(name, is_entry=marks[0], is_shim_entry=marks[1])
        for name, marks in (("inner", inner), ("outer", outer))
    ]
    ((_, parsed),) = parse(_dump(*frames))
    assert [item.frame.entry for item in parsed] == entries


def test_a_version_that_does_not_say_where_evaluations_begin() -> None:
    ((thread, parsed),) = parse(_dump(_frame("inner"), _frame("outer")))
    assert [item.frame.entry for item in parsed] == [True, True]
    assert (thread.os_thread_id, thread.name, thread.frames) == (5, "MainThread", ())
    assert parsed[0].frame.source == "/job/a.py:3"


def test_native_frames_are_known_by_their_object() -> None:
    bare = _frame("ffi_call", filename="/usr/lib/libffi.so.8", module="/usr/lib/libffi.so.8")
    # With debugging information the file name is that of the source.
    rich = _frame("closure_fcn", filename="/build/callbacks.c", module="/lib/_ctypes.so")
    ((_, parsed),) = parse(_dump(bare, rich, _frame("f")))
    assert [item.native for item in parsed] == [True, True, False]
    assert [item.frame.source for item in parsed[:2]] == ["/usr/lib/libffi.so.8", "/lib/_ctypes.so"]


@pytest.mark.parametrize("output", [b"Error: x", b"{}", b"[1]", b'[{"frames": 1}]'])
def test_what_is_not_a_dump_is_refused(output: bytes) -> None:
    with pytest.raises(CaptureFailed):
        parse(output)
