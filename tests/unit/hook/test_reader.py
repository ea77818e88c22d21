"""The reader against files that are torn, cut, or hostile."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from relkit.errors import BadDump
from relkit.hook import layout
from relkit.hook.model import HookState, OpKind
from relkit.hook.reader import RECENT_EACH, read_state, state_files
from relkit.hook.state_file import Rows

HOOKS = [(OpKind.COLLECTIVE, b"allreduce"), (OpKind.GEMM, b"sgemm"), (0, b"socket")]


def blank(slots: int = 2, communicators: int = 3) -> bytearray:
    """A recorder file with nothing recorded."""
    tables = {
        "hooks_at": (layout.HOOK, "hook_count", len(HOOKS)),
        "communicators_at": (layout.COMMUNICATOR, "communicator_count", communicators),
        "slots_at": (layout.SLOT, "slot_count", slots),
        "captures_at": (layout.CAPTURE, "capture_count", 1),
    }
    header = np.zeros(1, layout.HEADER)
    header["magic"], header["endian"], header["version"] = (
        layout.MAGIC,
        layout.ENDIAN,
        layout.VERSION,
    )
    for field, value in layout.NUMPY_SIZES.items():
        header[field] = value
    at = 4096
    for start, (kind, count_field, count) in tables.items():
        header[start], header[count_field] = at, count
        at += kind.itemsize * count
    header["file_bytes"], header["ready"], header["pid"] = at, 1, 77
    header["slots_used"], header["rank"] = slots, 3
    data = bytearray(at)
    data[: layout.HEADER.itemsize] = header.tobytes()
    hooks = np.zeros(len(HOOKS), layout.HOOK)
    for row, (kind_number, name) in zip(hooks, HOOKS, strict=True):
        row["kind"], row["name"] = int(kind_number), name
    put(data, "hooks_at", hooks)
    return data


def put(data: bytearray, table: str, rows: Rows, index: int = 0) -> None:
    header = np.frombuffer(bytes(data[: layout.HEADER.itemsize]), layout.HEADER)[0]
    at = int(header[table]) + index * rows.dtype.itemsize
    data[at : at + rows.nbytes] = rows.tobytes()


def slot(numbers: range, flight: int = 0, flight_seq: int = 2, hook: int = 0) -> Rows:
    """A slot whose ring holds the operations of these numbers, by the recorder's rules."""
    rows = np.zeros(1, layout.SLOT)
    rows["started"] = numbers.stop + bool(flight)
    rows["finished"], rows["flight_seq"] = numbers.stop, flight_seq
    for number in numbers:
        op = rows["ring"][0][number % layout.RING_LENGTH]
        op["start_ns"], op["end_ns"], op["seq"] = 10 * number + 1, 10 * number + 5, number
        op["hook"], op["tid"] = hook, 9
    if numbers:
        rows["last_finish_ns"] = 10 * numbers[-1] + 5
    rows["flight"][0]["start_ns"], rows["flight"][0]["tid"] = flight, 9
    rows["flight"][0]["communicator"] = 1
    return rows


def read(tmp_path: Path, data: bytes | bytearray) -> HookState:
    path = tmp_path / "77.rkhook"
    path.write_bytes(data)
    path.chmod(0o600)
    return read_state(path)


def test_a_blank_file_reads_as_nothing_recorded(tmp_path: Path) -> None:
    state = read(tmp_path, blank())
    assert (state.pid, state.rank, state.started, state.finished) == (77, 3, 0, 0)
    assert (state.in_flight, state.recent, state.communicators, state.missing) == ((), (), (), ())
    assert HookState.from_json(state.to_json()) == state


def test_a_full_ring_gives_all_but_the_entry_that_may_be_half_written(tmp_path: Path) -> None:
    data = blank()
    put(data, "slots_at", slot(range(1000)))
    state = read(tmp_path, data)
    assert state.finished == 1000
    assert [op.seq for op in state.recent] == list(range(1000 - RECENT_EACH, 1000))
    assert state.last_finish_ns == 9995


def test_products_do_not_push_out_collectives(tmp_path: Path) -> None:
    data = blank()
    put(data, "slots_at", slot(range(10)))
    put(data, "slots_at", slot(range(5000, 5500), hook=1), index=1)
    names = [op.name for op in read(tmp_path, data).recent]
    assert names == ["allreduce"] * 10 + ["sgemm"] * RECENT_EACH


def test_an_operation_that_is_in_flight_and_landed_counts_once(tmp_path: Path) -> None:
    data = blank()
    put(data, "slots_at", slot(range(5), flight=41))
    put(data, "slots_at", slot(range(0), flight=500), index=1)
    state = read(tmp_path, data)
    assert [op.start_ns for op in state.in_flight] == [500]
    assert state.in_flight[0].communicator == -1  # there is no such communicator
    brief = read_state(tmp_path / "77.rkhook", recent=False)
    assert brief == replace(state, recent=(), now_ns=brief.now_ns)


def test_a_slot_that_died_while_being_written_holds_no_flight(tmp_path: Path) -> None:
    data = blank()
    put(data, "slots_at", slot(range(3), flight=900, flight_seq=3))
    state = read(tmp_path, data)
    assert state.in_flight == ()
    assert len(state.recent) == 3


def test_plumbing_is_no_operation_and_unknown_hooks_are_left_out(tmp_path: Path) -> None:
    data = blank()
    put(data, "slots_at", slot(range(3), hook=2))
    put(data, "slots_at", slot(range(3), hook=999), index=1)
    assert read(tmp_path, data).recent == ()


def test_communicators_and_missing_symbols(tmp_path: Path) -> None:
    data = blank()
    rows = np.zeros(2, layout.COMMUNICATOR)
    name = b"pipeline".ljust(88, b"\0")
    rows[0] = (4096, 1, 4, 41, 42, 1, 8, name)
    rows[1] = (1, 0, 2, -1, 0, 1, 0, bytes(88))
    put(data, "communicators_at", rows)
    at = layout.offset_of(layout.HEADER, "missing")
    data[at : at + 8] = (0b10).to_bytes(8, "little")
    state = read(tmp_path, data)
    assert [(c.name, c.rank, c.size, c.seq) for c in state.communicators] == [
        ("pipeline", 1, 4, 41),
        ("", 0, 2, -1),
    ]
    assert state.missing == ("sgemm",)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("magic", b"ELF", "not a recorder file"),
        ("endian", 0x04030201, "not a recorder file"),
        ("version", 9, "layout version 9"),
        ("slot_bytes", 1, "slot_bytes is 1"),
        ("file_bytes", 1 << 62, "truncated"),
        ("slots_at", 1 << 63, "beyond the end"),
        ("capture_count", 1 << 31, "beyond the end"),
        ("ready", 0, "just starting"),
    ],
)
def test_headers_that_make_no_sense(
    tmp_path: Path, field: str, value: int | bytes, message: str
) -> None:
    data = blank()
    header = np.frombuffer(bytes(data[: layout.HEADER.itemsize]), layout.HEADER).copy()
    header[field] = value
    data[: layout.HEADER.itemsize] = header.tobytes()
    with pytest.raises(BadDump, match=message):
        read(tmp_path, data)


@pytest.mark.parametrize("size", [0, 1, 100, 4096, 9000])
def test_a_file_that_is_cut_short(tmp_path: Path, size: int) -> None:
    with pytest.raises(BadDump, match="truncated"):
        read(tmp_path, blank()[:size])


def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "1.rkhook").mkdir()
    os.mkfifo(tmp_path / "2.rkhook")
    (tmp_path / "3.rkhook").symlink_to("/etc/passwd")
    found = state_files(tmp_path)
    assert len(found) == 3
    for path in [*found, tmp_path / "4.rkhook"]:
        with pytest.raises(BadDump):
            read_state(path)


def test_only_files_with_our_names_are_state_files(tmp_path: Path) -> None:
    for name in ("12.rkhook", "7.rkhook", "x.rkhook", "07.rkhook", "12.rkhook.tmp", "notes"):
        (tmp_path / name).touch()
    assert [path.name for path in state_files(tmp_path)] == ["7.rkhook", "12.rkhook"]
    assert state_files(tmp_path / "none") == []


PATCHES = st.lists(
    st.tuples(st.integers(0, 40_000), st.binary(min_size=1, max_size=24)), max_size=12
)


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(patches=PATCHES, length=st.none() | st.integers(0, 40_000))
def test_any_bytes_give_a_state_or_a_clear_error(
    tmp_path: Path, patches: list[tuple[int, bytes]], length: int | None
) -> None:
    data = blank()
    put(data, "slots_at", slot(range(70), flight=9000))
    for at, patch in patches:
        at %= len(data)
        data[at : at + len(patch)] = patch[: len(data) - at]
    try:
        state = read(tmp_path, data[:length])
    except BadDump:
        return
    assert HookState.from_json(state.to_json()) == state
    assert state.started >= state.finished >= 0


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.binary(max_size=2000))
def test_a_foreign_file_is_refused(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(BadDump):
        read(tmp_path, data)


def test_a_count_of_operations_that_no_rank_can_reach_is_survived(tmp_path: Path) -> None:
    data, rows = blank(), slot(range(3))
    rows["finished"] = 2**64 - 8
    put(data, "slots_at", rows)
    assert read(tmp_path, data).finished == 2**64 - 8
