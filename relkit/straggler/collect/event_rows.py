"""Finished operations of one rank as columns that steps are cut from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from relkit.hook.model import Communicator, OpKind
from relkit.straggler.model import Ints
from relkit.straggler.step_record import operation_number

Rows = npt.NDArray[Any]
Codes = npt.NDArray[np.uint64]

MARK_KIND = int(OpKind.MARK)
STEP_MARK, INPUT_MARK, GC_MARK = 1, 2, 3
_MARKS = {"step": STEP_MARK, "input": INPUT_MARK, "gc": GC_MARK}

# Stands for the sends and receives of a rank where a communicator is asked for.
P2P_TRACK = -2

ROW = np.dtype(
    [
        ("kind", "<i4"),
        ("mark", "<i4"),
        ("operation", "<i4"),
        ("communicator", "<i4"),
        ("direction", "<i4"),
        ("main", "?"),
        ("device", "?"),
        ("seq", "<i8"),
        ("size_bytes", "<i8"),
        ("start_ns", "<i8"),
        ("end_ns", "<i8"),
        ("run_ns", "<i8"),
        ("wait_ns", "<i8"),
        ("busy_ns", "<i8"),
        ("code", "<u8"),
    ]
)

_COPIED = ("seq", "size_bytes", "start_ns", "end_ns", "busy_ns")
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_MIX = np.uint64(0xFF51AFD7ED558CCD)
_HALF = np.uint64(32)


@dataclass(frozen=True, slots=True)
class HookMeaning:
    """What the rows of a hook's table are, by their number.

    Args:
        kinds: OpKind, or MARK_KIND; operations: numbers of OPERATIONS, for sends and receives of
            their own; marks: which mark, 0 for none.
    """

    kinds: Ints
    operations: Ints
    marks: Ints

    @classmethod
    def of(cls, names: Sequence[str], kinds: Sequence[int]) -> HookMeaning:
        """From the table of a recorder file."""
        operations = [
            -len(name) if kind == OpKind.P2P else operation_number(name)
            for name, kind in zip(names, kinds, strict=True)
        ]
        marks = [
            _MARKS.get(name, 0) if kind == MARK_KIND else 0
            for name, kind in zip(names, kinds, strict=True)
        ]
        return cls(np.array(kinds), np.array(operations), np.array(marks))


def mix(value: Codes) -> Codes:
    """Spread the bits, the same way on every host."""
    spread: Codes = value * _SPREAD
    spread ^= spread >> _HALF
    spread *= _MIX
    spread ^= spread >> _HALF
    return spread


def event_rows(
    events: Rows, meaning: HookMeaning, groups: Sequence[Communicator], main_tid: int
) -> Rows:
    """Collectives, sends, receives and marks as ROWs; what makes no sense is left out.

    run_ns and wait_ns stay 0: RunTimes fills them in.

    Args:
        events: EVENT rows of relkit.hook.events.
        groups: the rank's communicators; main_tid: thread id of its main thread.
    """
    hook = events["hook"].astype(np.int64)
    known = hook < len(meaning.kinds)
    if not known.all():
        events, hook = events[known], hook[known]
    kind = meaning.kinds[hook]
    wanted = (kind == OpKind.COLLECTIVE) | (kind == OpKind.P2P) | (meaning.marks[hook] > 0)
    wanted &= (events["end_ns"] >= events["start_ns"]) & (events["end_ns"] < np.uint64(1 << 62))
    if not wanted.all():
        events, hook, kind = events[wanted], hook[wanted], kind[wanted]
    rows = np.zeros(len(events), ROW)
    for name in _COPIED:
        rows[name] = events[name]
    rows["kind"], rows["mark"] = kind, meaning.marks[hook]
    rows["operation"] = meaning.operations[hook]
    rows["communicator"] = events["communicator"]
    rows["main"] = events["tid"] == main_tid
    rows["device"] = events["enqueue_ns"] > 0
    mine = np.full(len(groups) + 1, -1)
    for group in groups:
        mine[group.index] = group.rank
    outside = (rows["communicator"] < 0) | (rows["communicator"] >= len(groups))
    rows["communicator"][outside] = -1
    ahead = np.sign(events["peer"].astype(np.int64) - mine[rows["communicator"]])
    rows["direction"] = np.where((kind == OpKind.P2P) & (events["peer"] >= 0), ahead, 0)
    rows["code"] = mix(
        mix(rows["operation"].astype(np.uint64)) + rows["size_bytes"].astype(np.uint64)
    ) + rows["direction"].astype(np.uint64)
    return rows
