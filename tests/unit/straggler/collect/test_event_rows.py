"""What is kept of a recorder's events: their numbers, and what the hook's table says."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from relkit.hook import layout
from relkit.hook.model import Communicator, OpKind
from relkit.straggler.collect.event_rows import (
    GC_MARK,
    MARK_KIND,
    STEP_MARK,
    HookMeaning,
    event_rows,
)
from relkit.straggler.step_record import operation_number

NAMES = ("allreduce", "sgemm", "gc", "step", "send")
KINDS = (OpKind.COLLECTIVE, OpKind.GEMM, MARK_KIND, MARK_KIND, OpKind.P2P)
MEANING = HookMeaning.of(NAMES, [int(kind) for kind in KINDS])
MAIN_TID = 71
COPIED = ("seq", "size_bytes", "start_ns", "end_ns", "busy_ns")
GROUPS = (Communicator(0, 2, 4, "0"), Communicator(1, 0, 2, "1"))
NUMBER = st.integers(0, 1 << 40)


@st.composite
def events(draw: st.DrawFn) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    """Finished operations, each number of its own."""
    rows = np.zeros(draw(st.integers(1, 6)), layout.EVENT)
    for row in rows:
        for name in ("seq", "size_bytes", "start_ns", "busy_ns"):
            row[name] = draw(NUMBER)
        row["end_ns"] = row["start_ns"] + draw(NUMBER)
        row["hook"] = draw(st.integers(0, len(NAMES)))
        row["communicator"] = draw(st.integers(-1, len(GROUPS)))
        row["peer"] = draw(st.integers(-1, 3))
        row["tid"] = draw(st.sampled_from([MAIN_TID, 72]))
        row["enqueue_ns"] = draw(st.sampled_from([0, 5]))
    return rows


@given(events())
def test_each_operation_keeps_its_numbers(rows: np.ndarray[tuple[int], np.dtype[np.void]]) -> None:
    """All but kernels and what is no row of the table, in the order in which they came."""
    kept = rows[(rows["hook"] != 1) & (rows["hook"] < len(NAMES))]
    found = event_rows(rows, MEANING, GROUPS, MAIN_TID)
    for name in COPIED:
        assert found[name].tolist() == kept[name].tolist(), name
    assert found["main"].tolist() == (kept["tid"] == MAIN_TID).tolist()
    assert found["device"].tolist() == (kept["enqueue_ns"] > 0).tolist()
    inside = (kept["communicator"] >= 0) & (kept["communicator"] < len(GROUPS))
    assert found["communicator"].tolist() == np.where(inside, kept["communicator"], -1).tolist()


def one(**fields: int) -> np.void:
    """The row of a single event."""
    rows = np.zeros(1, layout.EVENT)
    rows["communicator"] = rows["peer"] = -1
    for name, value in fields.items():
        rows[name] = value
    (found,) = event_rows(rows, MEANING, GROUPS, MAIN_TID)
    assert isinstance(found, np.void)
    return found


def test_what_the_table_says_of_an_operation() -> None:
    assert one(hook=0)["operation"] == operation_number("allreduce")
    assert [one(hook=hook)["mark"] for hook in (0, 2, 3)] == [0, GC_MARK, STEP_MARK]
    assert one(hook=4)["operation"] == -len("send")


def test_a_send_goes_ahead_or_back_by_the_peers_place_in_its_group() -> None:
    directions = [one(hook=4, communicator=0, peer=peer)["direction"] for peer in range(-1, 4)]
    assert directions == [0, -1, -1, 0, 1]
    assert one(hook=0, communicator=0, peer=3)["direction"] == 0


def test_operations_that_differ_have_other_codes() -> None:
    codes = [
        one(hook=0)["code"],
        one(hook=0, size_bytes=8)["code"],
        one(hook=4)["code"],
        one(hook=4, communicator=0, peer=3)["code"],
        one(hook=4, communicator=0, peer=1)["code"],
    ]
    assert len(set(codes)) == len(codes)


def test_what_ends_before_it_begins_or_in_a_hundred_years_is_left_out() -> None:
    rows = np.zeros(3, layout.EVENT)
    rows["start_ns"] = [5, 5, 5]
    rows["end_ns"] = [4, 5, 1 << 62]
    rows["seq"] = [1, 2, 3]
    assert event_rows(rows, MEANING, GROUPS, MAIN_TID)["seq"].tolist() == [2]
