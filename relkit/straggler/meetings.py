"""The collectives of one step, side by side: who came late, how long the transfer took."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from relkit.straggler.clocks import ClockOffsets, estimate_offsets
from relkit.straggler.links import Transfer
from relkit.straggler.model import Floats, Ints
from relkit.straggler.step_record import SYNCHRONISING, StepRecord

# Meetings of all hosts that the clocks are told from, newest kept.
_CLOCK_MEETINGS = 256
_CLOCK_EVERY = 8
_CONNECT = 12


@dataclass(frozen=True, slots=True)
class Meetings:
    """All collectives of a step in which every member of the group was seen.

    Args:
        rows: one a rank and collective, sorted so that those of one collective follow each other;
            rank, start_s, end_s (on the first host's clock, after `origin_ns`).
        first: where each collective begins in rows; size: how many ranks it has.
        group, operation, size_bytes: of each collective; group is a place in `names`.
        names: of the groups.
    """

    rank: Ints
    start_s: Floats
    end_s: Floats
    first: Ints
    size: Ints
    group: Ints
    operation: Ints
    size_bytes: Ints
    names: tuple[str, ...]


def meetings(records: Sequence[StepRecord], offset_s: Mapping[str, float]) -> Meetings:
    """Put the collectives of all ranks of one step together.

    Args:
        records: one a rank; offset_s: by host, as ClockOffsets gives it; 0 where not known.
    """
    number: dict[str, int] = {}
    blocks: list[npt.NDArray[Any]] = []
    ranks, groups, sizes, shifts = [], [], [], []
    for one in records:
        if not len(one.collectives):
            continue
        places = np.array([number.setdefault(name, len(number)) for name, _, _ in one.groups])
        most = np.array([size for _, size, _ in one.groups])
        table = one.collectives
        known = (table["communicator"] < len(places)) & (table["operation"] != _CONNECT)
        table = table[known & (table["seq"] >= 0)]
        blocks.append(table)
        ranks.append(np.full(len(table), one.rank))
        groups.append(places[table["communicator"]])
        sizes.append(most[table["communicator"]])
        shifts.append(np.full(len(table), offset_s.get(one.host, 0.0)))
    if not blocks or not sum(map(len, blocks)):
        none = np.empty(0, np.int64)
        empty = np.empty(0)
        return Meetings(none, empty, empty, none, none, none, none, none, ())
    table = np.concatenate(blocks)
    rank, group, shift = np.concatenate(ranks), np.concatenate(groups), np.concatenate(shifts)
    size = np.concatenate(sizes)
    origin_ns = int(table["start_ns"].min())
    order = np.lexsort((rank, table["operation"], table["seq"], group))
    table, rank, group = table[order], rank[order], group[order]
    shift, size = shift[order], size[order]
    new = np.ones(len(table), dtype=bool)
    new[1:] = (
        (group[1:] != group[:-1])
        | (table["seq"][1:] != table["seq"][:-1])
        | (table["operation"][1:] != table["operation"][:-1])
    )
    first = np.flatnonzero(new)
    count = np.diff(np.append(first, len(table)))
    # One that somebody has not reported says nothing of who came last.
    whole = (count == size[first]) & (count > 1)
    kept = np.repeat(whole, count)
    first, count = first[whole], count[whole]
    starts = np.concatenate([[0], np.cumsum(count)])[:-1].astype(np.int64)
    return Meetings(
        rank=rank[kept],
        start_s=(table["start_ns"][kept] - origin_ns) / 1e9 - shift[kept],
        end_s=(table["end_ns"][kept] - origin_ns) / 1e9 - shift[kept],
        first=starts,
        size=count,
        group=group[first],
        operation=table["operation"][first].astype(np.int64),
        size_bytes=table["size_bytes"][first],
        names=tuple(number),
    )


def middles(values: Floats, first: Ints, size: Ints) -> Floats:
    """The median of each collective's values."""
    found = np.empty(len(first))
    for ranks in np.unique(size):
        of = size == ranks
        block = values[first[of][:, None] + np.arange(ranks)]
        found[of] = np.median(block, axis=1)
    return found


def lateness(seen: Meetings, world_size: int) -> Floats:
    """Of each rank the most that it came after the middle of its group, s; NaN = not known."""
    found = np.full(world_size, np.nan)
    if not len(seen.first):
        return found
    late = seen.start_s - np.repeat(middles(seen.start_s, seen.first, seen.size), seen.size)
    inside = seen.rank < world_size
    filled = np.full(world_size, -np.inf)
    np.maximum.at(filled, seen.rank[inside], late[inside])
    known = np.isfinite(filled)
    found[known] = filled[known]
    return found


def transfers(seen: Meetings, host_of: Sequence[str]) -> list[Transfer]:
    """Transfers between hosts after the last arrival: one a group and shape, means of the step."""
    if not len(seen.first):
        return []
    last_s = np.maximum.reduceat(seen.start_s, seen.first)
    out_s = middles(seen.end_s, seen.first, seen.size)
    by_shape: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    for at, key in enumerate(
        zip(seen.group.tolist(), seen.operation.tolist(), seen.size_bytes.tolist(), strict=True)
    ):
        by_shape[key].append(at)
    found = []
    for (_, operation, size_bytes), places in by_shape.items():
        begin, size = int(seen.first[places[0]]), int(seen.size[places[0]])
        members = seen.rank[begin : begin + size].tolist()
        hosts = tuple(dict.fromkeys(host_of[rank] for rank in members))
        if len(hosts) < 2:
            continue
        seconds = float(np.mean(np.maximum(out_s[places] - last_s[places], 0.0)))
        left = seen.end_s[seen.first[places][:, None] + np.arange(size)] - out_s[places, None]
        by_host = [
            float(np.mean(left[:, [host_of[rank] == host for rank in members]])) for host in hosts
        ]
        shape = (operation, size_bytes, size, len(hosts))
        found.append(Transfer(hosts, shape, seconds, exit_s=tuple(by_host)))
    return found


class Clocks:
    """Offsets between hosts, from the newest meetings in which all of them took part."""

    def __init__(self) -> None:
        self._hosts: tuple[str, ...] = ()
        self._starts: deque[Floats] = deque(maxlen=_CLOCK_MEETINGS)
        self._ends: deque[Floats] = deque(maxlen=_CLOCK_MEETINGS)
        self._seen = 0
        self.offsets: ClockOffsets | None = None

    def offset_s(self) -> dict[str, float]:
        """By host, s; {} where nothing is known yet."""
        if self.offsets is None:
            return {}
        known = np.nan_to_num(self.offsets.offset_s)
        return dict(zip(self._hosts, known.tolist(), strict=True))

    def table(self) -> dict[str, tuple[float, float]]:
        """Host -> (offset, standard error), s."""
        if self.offsets is None:
            return {}
        pairs = zip(self.offsets.offset_s.tolist(), self.offsets.sigma_s.tolist(), strict=True)
        return {h: p for h, p in zip(self._hosts, pairs, strict=True) if np.isfinite(p).all()}

    def update(self, records: Sequence[StepRecord], host_of: Sequence[str]) -> None:
        """Take the meetings of one step."""
        hosts = tuple(dict.fromkeys(host_of))
        if len(hosts) < 2:
            return
        if hosts != self._hosts:
            self._hosts, self.offsets = hosts, None
            self._starts.clear()
            self._ends.clear()
        # On each host's own clock, but from one origin, so that seconds keep their digits.
        plain = meetings(records, {})
        number = {host: at for at, host in enumerate(hosts)}
        host = np.array([number[host_of[rank]] for rank in plain.rank], dtype=np.int64)
        usable = np.isin(plain.operation, SYNCHRONISING)
        for at in np.flatnonzero(usable)[:4]:
            rows = slice(int(plain.first[at]), int(plain.first[at] + plain.size[at]))
            if len(set(host[rows].tolist())) < len(hosts):
                continue
            start, end = np.full(len(host_of), np.nan), np.full(len(host_of), np.nan)
            start[plain.rank[rows]], end[plain.rank[rows]] = plain.start_s[rows], plain.end_s[rows]
            self._starts.append(start)
            self._ends.append(end)
        self._seen += 1
        if self._starts and (self.offsets is None or self._seen % _CLOCK_EVERY == 0):
            of = np.array([number[name] for name in host_of], dtype=np.int64)
            self.offsets = estimate_offsets(np.stack(self._starts), np.stack(self._ends), of)
