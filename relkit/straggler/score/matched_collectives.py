"""The collectives of one step, side by side: who came late, how long the transfer took."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from relkit.straggler.model import Floats, Ints
from relkit.straggler.score.links import Transfer
from relkit.straggler.step_record import COLLECTIVE, OPERATIONS, StepRecord, StepTable

_CONNECT = OPERATIONS.index("connect")
# Hostile sequence numbers must not overflow.
_MAX_SEQ = 1 << 62
_SHORT = 1 << 16
# Of a row of COLLECTIVE: communicator and operation are one.
_WORDS = COLLECTIVE.itemsize // 8
_MAX_GROUPS = 1 << 22


@dataclass(frozen=True, slots=True)
class MatchedCollectives:
    """All collectives of a step in which every member of the group was seen.

    Args:
        rows: one a rank and collective, sorted so that those of one collective follow each other;
            rank, start_s, end_s (from one origin).
        first: where each collective begins in rows; size: how many ranks it has.
        group, operation, size_bytes: of each collective; group is a number for its name.
        origin_s: Unix time of the origin, s.
        step: of each collective, place of the step that it belongs to.
    """

    rank: Ints
    start_s: Floats
    end_s: Floats
    first: Ints
    size: Ints
    group: Ints
    operation: Ints
    size_bytes: Ints
    step: Ints
    origin_s: float = 0.0


class Groups:
    """Numbers for the names of process groups, kept from step to step."""

    def __init__(self) -> None:
        self._number: dict[str, int] = {}
        self._place: dict[tuple[tuple[str, int, int], ...], int] = {}
        self._latest: dict[int, tuple[tuple[tuple[str, int, int], ...], int]] = {}
        self._group_at: list[int] = []
        self._size_at: list[int] = []
        self._arrays = np.empty(0, np.int64), np.empty(0, np.int64)

    def place(self, rank: int, groups: tuple[tuple[str, int, int], ...]) -> int:
        """Where the groups of a rank begin in arrays()."""
        # To compare them is quicker than to hash them.
        before = self._latest.get(rank)
        if before is not None and before[0] == groups:
            return before[1]
        at = self._place.get(groups)
        if at is None:
            if len(self._group_at) > _MAX_GROUPS:
                raise ValueError(f"more than {_MAX_GROUPS} groups")
            at = self._place[groups] = len(self._group_at)
            for name, size, _ in groups:
                self._group_at.append(self._number.setdefault(name, len(self._number)))
                self._size_at.append(size)
        self._latest[rank] = (groups, at)
        return at

    def arrays(self) -> tuple[Ints, Ints]:
        """(number, size) of the groups of all ranks."""
        if len(self._arrays[0]) != len(self._group_at):
            self._arrays = np.array(self._group_at), np.array(self._size_at)
        return self._arrays


def match_collectives(
    records: Sequence[StepRecord],
    groups: Groups | None = None,
    steps: Sequence[int] | None = None,
) -> MatchedCollectives:
    """Put the collectives of all ranks of one step together, each on its own host's clock.

    Args:
        records: one a rank; groups: of the steps before, so that names are not looked at anew.
        steps: place of the step of each record, where there are several; only those of
            one step are matched.
    """
    steps = steps or [0] * len(records)
    pairs = [
        (record, step)
        for record, step in zip(records, steps, strict=True)
        if len(record.collectives) and record.groups
    ]
    members = [record for record, _ in pairs]
    if not members:
        return _none()
    groups = groups or Groups()
    # As plain bytes: joining structures compares their fields a thousand times.
    raw: list[Any] = [np.ascontiguousarray(record.collectives) for record in members]
    table = np.frombuffer(b"".join(raw), COLLECTIVE)
    first_group = [groups.place(record.rank, record.groups) for record in members]
    group_at, size_at = groups.arrays()
    lengths = np.array([len(each) for each in raw])
    begin = np.repeat(np.array(first_group), lengths)
    many = np.repeat(np.array([len(record.groups) for record in members]), lengths)
    rank = np.repeat(np.array([record.rank for record in members]), lengths)
    step = np.repeat(np.array([step for _, step in pairs]), lengths)
    # Columns of their own: what lies together is read many times as fast.
    words = table.view(np.int64).reshape(-1, _WORDS)
    communicator, operation = words[:, 0] & 0xFFFFFFFF, words[:, 0] >> 32
    seq = words[:, 1].copy()
    known = (communicator < many) & (seq.view(np.uint64) < _MAX_SEQ)
    known &= (operation.view(np.uint64) < len(OPERATIONS)) & (operation != _CONNECT)
    if not known.all():
        table, rank, begin, seq = table[known], rank[known], begin[known], seq[known]
        step = step[known]
        communicator, operation = communicator[known], operation[known]
        if not len(table):
            return _none()
    place = begin + communicator
    group = group_at[place]
    shared = step * (int(group.max()) + 1) + group
    order = _order(shared * len(OPERATIONS) + operation, seq)
    group, seq, operation = group[order], seq[order], operation[order]
    first = _changes(shared[order], operation, seq)
    count = np.diff(np.append(first, len(table)))
    # One that somebody has not reported says nothing of who came last.
    whole = (count == size_at[place[order[first]]]) & (count > 1)
    kept = order if whole.all() else order[np.repeat(whole, count)]
    first, count = first[whole], count[whole]
    origin_ns = int(table["start_ns"].min())
    return MatchedCollectives(
        rank=rank[kept],
        start_s=(table["start_ns"][kept] - origin_ns) / 1e9,
        end_s=(table["end_ns"][kept] - origin_ns) / 1e9,
        first=np.concatenate([[0], np.cumsum(count)])[:-1].astype(np.int64),
        size=count,
        group=group[first],
        operation=operation[first],
        size_bytes=table["size_bytes"][order[first]],
        origin_s=origin_ns / 1e9,
        step=step[order[first]],
    )


def _order(kind: Ints, seq: Ints) -> Ints:
    """Puts equal ones beside each other: by kind, then by seq; ranks stay in their order."""
    kinds = int(kind.max()) + 1
    lowest, highest = np.full(kinds, _MAX_SEQ), np.full(kinds, -1)
    np.minimum.at(lowest, kind, seq)
    np.maximum.at(highest, kind, seq)
    span = np.where(highest < 0, 0, highest - lowest + 1)
    # Short numbers are sorted ten times as fast: one for each collective that there can be.
    if span.max() >= _SHORT or int(span.sum()) >= _SHORT:
        return np.lexsort((seq, kind)).astype(np.int64)
    label = (np.cumsum(span) - span - lowest)[kind] + seq
    return np.argsort(label.astype(np.uint16), kind="stable")


def _changes(*columns: Ints) -> Ints:
    """Where any of the columns has another value than in the row before; 0 too."""
    new = np.zeros(len(columns[0]), dtype=bool)
    new[0] = True
    for column in columns:
        new[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(new)


def _none() -> MatchedCollectives:
    number, time_s = np.empty(0, np.int64), np.empty(0)
    return MatchedCollectives(
        number, time_s, time_s, number, number, number, number, number, number
    )


def on_one_clock(matched: MatchedCollectives, offset_s: Floats) -> MatchedCollectives:
    """The same with all times on the first host's clock.

    Args:
        offset_s: by rank, what the clock of its host is ahead, s.
    """
    shift = offset_s[matched.rank]
    return replace(matched, start_s=matched.start_s - shift, end_s=matched.end_s - shift)


def middles(values: Floats, first: Ints, size: Ints) -> Floats:
    """The median of each collective's values."""
    medians = np.empty(len(first))
    for ranks in np.flatnonzero(np.bincount(size)).tolist():
        of = size == ranks
        # Of a few values each, sorting all is five times as fast as looking for the middle.
        block = np.sort(values[first[of][:, None] + np.arange(ranks)], axis=1)
        medians[of] = 0.5 * (block[:, (ranks - 1) // 2] + block[:, ranks // 2])
    return medians


def lateness(matched: MatchedCollectives, world_size: int, steps: int = 1) -> Floats:
    """By how much each rank came after the middle of its group, s; NaN = not known.

    Added up over the step: who is slow is late anew after every collective, by a little each time.

    Args:
        steps: that there are collectives of.

    Returns:
        (steps * ranks,), step after step.
    """
    late_s = np.full(steps * world_size, np.nan)
    if not len(matched.first):
        return late_s
    after = matched.start_s - np.repeat(
        middles(matched.start_s, matched.first, matched.size), matched.size
    )
    inside = matched.rank < world_size
    cell = (np.repeat(matched.step, matched.size) * world_size + matched.rank)[inside]
    total = np.bincount(cell, weights=after[inside], minlength=len(late_s))
    met = np.bincount(cell, minlength=len(late_s)) > 0
    late_s[met] = total[met]
    return late_s


def lateness_by_step(tables: Sequence[StepTable], groups: Groups, world_size: int) -> Floats:
    """The same for some steps of ranks whose hosts share a clock, (steps, ranks)."""
    records = [record for table in tables for record in table.records]
    at = [place for place, table in enumerate(tables) for _ in table.records]
    matched = match_collectives(records, groups, at)
    return lateness(matched, world_size, len(tables)).reshape(len(tables), world_size)


def transfers(matched: MatchedCollectives, host_of: Sequence[str]) -> list[Transfer]:
    """Transfers between hosts after the last arrival: one a group and shape, means of the step."""
    if not len(matched.first):
        return []
    number = {host: at for at, host in enumerate(dict.fromkeys(host_of))}
    at_host = np.array([number[host] for host in host_of])[matched.rank]
    across = np.minimum.reduceat(at_host, matched.first) != np.maximum.reduceat(
        at_host, matched.first
    )
    last_s = np.maximum.reduceat(matched.start_s, matched.first)
    moved: list[Transfer] = []
    for size in np.flatnonzero(np.bincount(matched.size[across], minlength=1)).tolist():
        places = np.flatnonzero(across & (matched.size == size))
        keys = (matched.size_bytes[places], matched.operation[places], matched.group[places])
        order = np.lexsort(keys)
        places = places[order]
        begins = _changes(*(key[order] for key in keys))
        many = np.diff(np.append(begins, len(places)))
        ends = matched.end_s[matched.first[places][:, None] + np.arange(size)]
        ordered = np.sort(ends, axis=1)
        out_s = 0.5 * (ordered[:, (size - 1) // 2] + ordered[:, size // 2])
        took_s = np.add.reduceat(np.maximum(out_s - last_s[places], 0.0), begins) / many
        left_s = np.add.reduceat(ends - out_s[:, None], begins, axis=0) / many[:, None]
        members = matched.rank[matched.first[places[begins]][:, None] + np.arange(size)]
        shapes = zip(
            matched.operation[places[begins]].tolist(), matched.size_bytes[places[begins]].tolist(),
            members.tolist(), took_s.tolist(), left_s, strict=True,
        )  # fmt: skip
        for operation, size_bytes, ranks, seconds, left in shapes:
            hosts = tuple(dict.fromkeys(host_of[rank] for rank in ranks))
            place = {host: at for at, host in enumerate(hosts)}
            of = np.array([place[host_of[rank]] for rank in ranks])
            by_host = np.bincount(of, weights=left) / np.bincount(of)
            shape = (operation, size_bytes, size, len(hosts))
            moved.append(Transfer(hosts, shape, seconds, exit_s=tuple(by_host.tolist())))
    return moved
