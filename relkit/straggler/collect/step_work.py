"""What a rank communicates in a usual step: the key by which ranks of equal work are known."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from relkit.hook.model import OpKind
from relkit.straggler.collect.event_rows import MARK_KIND, P2P_TRACK, Rows, mix
from relkit.straggler.model import Ints

# Steps before the first look at what is usual, between two later ones at most, and looked at.
_FIRST_LOOK, _LOOK_EVERY, _LOOKED_AT = 4, 128, 16


@dataclass(frozen=True, slots=True)
class StepWork:
    """The usual work of a step.

    Args:
        peers_key: equal on ranks that communicate the same, whatever their groups are called.
        operations: communicators and operations that most steps have, as operation_codes()
            numbers them.
    """

    peers_key: str
    operations: frozenset[int]

    def foreign(self, rows: Rows) -> Ints:
        """Places of collectives that are no part of a usual step."""
        usual = np.array(sorted(self.operations), dtype=np.int64)
        odd = ~np.isin(operation_codes(rows, rows["communicator"].astype(np.int64)), usual)
        return np.flatnonzero((rows["kind"] == OpKind.COLLECTIVE) & odd).astype(np.int64)


def operation_codes(rows: Rows, track: Ints) -> Ints:
    """One number for communicator and operation."""
    numbers: Ints = track * (1 << 16) + rows["operation"]
    return numbers


class UsualWork:
    """Keeps the usual work of a rank's steps up to date, from the newest of them."""

    def __init__(self) -> None:
        self.work = StepWork("", frozenset())
        self.rows = 1.0
        self._recent: list[tuple[Rows, Rows, Rows]] = []
        self._steps = 0
        self._next = _FIRST_LOOK

    def take(self, rows: Rows, begins: Rows, ends: Rows, sizes: Mapping[int, int]) -> bool:
        """Note some steps; False as long as there were too few to tell what is usual.

        Args:
            rows: of the steps; begins, ends: their boundaries; sizes: ranks by communicator.
        """
        if self._steps + len(begins) < self._next:
            if self._steps:
                self._steps += len(begins)
                self._keep(rows, begins, ends)
            return self._steps > 0
        self._steps += len(begins)
        self._keep(rows, begins, ends)
        self._next = min(4 * self._steps, self._steps + _LOOK_EVERY)
        self.rows = max(1.0, len(rows) / len(begins))
        self.work = usual_work(self._recent, sizes)
        return True

    def _keep(self, rows: Rows, begins: Rows, ends: Rows) -> None:
        self._recent.append((rows, begins, ends))
        kept = 0
        for place in range(len(self._recent) - 1, -1, -1):
            kept += len(self._recent[place][1])
            if kept >= _LOOKED_AT:
                del self._recent[:place]
                break


def usual_work(steps: Sequence[tuple[Rows, Rows, Rows]], sizes: Mapping[int, int]) -> StepWork:
    """What there is in most of these steps.

    Args:
        steps: rows of successive steps with the boundaries of each; sizes: ranks by communicator.
    """
    kept, numbers, count = [], [], 0
    for rows, begins, ends in steps:
        step = step_of(rows, begins, ends)
        inside = (step >= 0) & (rows["kind"] != MARK_KIND)
        kept.append(rows[inside])
        numbers.append(step[inside] + count)
        count += len(begins)
    rows, step = np.concatenate(kept), np.concatenate(numbers)
    if not len(rows):
        return StepWork("", frozenset())
    track = np.where(rows["kind"] == OpKind.P2P, P2P_TRACK, rows["communicator"]).astype(np.int64)
    groups, each = _usual(track, step, count)
    places = {int(group): place for place, group in enumerate(groups[each >= 1])}
    # In a group of one rank nothing is communicated: its sizes are this rank's data (Megatron's
    # tensor-parallel group of one reduces its activations), and a rank with more of them is slow.
    single = [group for group, size in sizes.items() if size == 1]
    code = np.where(np.isin(track, single), rows["operation"].astype(np.uint64), rows["code"])
    codes = mix(code + mix(track.astype(np.uint64)))
    times = _usual(codes, step, count)[1]
    firsts = np.unique(codes, return_index=True)[1]
    profile = []
    for first, number in zip(firsts[times >= 1], times[times >= 1], strict=True):
        row, group = rows[first], int(track[first])
        size = sizes.get(group, 0)
        profile.append(
            (places.get(group, -1), size, int(row["operation"]), int(code[first]), number)
        )
    digest = hashlib.blake2s(repr(sorted(profile)).encode(), digest_size=8)
    pairs, times = _usual(operation_codes(rows, track), step, count)
    usual = frozenset(int(pair) for pair in pairs[times >= 1])
    return StepWork(digest.hexdigest() if profile else "", usual)


def step_of(rows: Rows, begins: Rows, ends: Rows) -> Ints:
    """Of each row the place of its step, -1 for none; steps are in order of time."""
    step = np.searchsorted(ends["end_ns"], rows["end_ns"], side="left")
    inside = step < len(ends)
    inside[inside] &= rows["end_ns"][inside] > begins["end_ns"][step[inside]]
    return np.where(inside, step, -1).astype(np.int64)


def _usual(values: npt.NDArray[Any], step: Ints, steps: int) -> tuple[npt.NDArray[Any], Ints]:
    """Each value and how often most steps have it.

    The median: what races with the end of a step is now in one step and now in the next.
    """
    kinds, which = np.unique(values, return_inverse=True)
    counts = np.bincount(which * steps + step, minlength=len(kinds) * steps)
    middle = np.median(counts.reshape(len(kinds), steps), axis=1)
    return kinds, np.floor(middle).astype(np.int64)
