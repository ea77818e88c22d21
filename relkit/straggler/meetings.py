"""The collectives of one step, side by side: who came late, how long the transfer took."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from relkit.straggler.clocks import ClockOffsets, estimate_offsets
from relkit.straggler.links import Transfer
from relkit.straggler.model import Floats, Ints
from relkit.straggler.step_record import COLLECTIVE, OPERATIONS, SYNCHRONISING, StepRecord

# Meetings of all hosts that the clocks are told from, newest kept.
_CLOCK_MEETINGS = 256
_CLOCK_EVERY = 8
_CLOCK_A_STEP = 4
_AS_BYTES = np.dtype((np.void, COLLECTIVE.itemsize))
_CONNECT = OPERATIONS.index("connect")
# Sequence numbers of one step lie close together; hostile ones must not overflow the label.
_MOST_SPAN = 1 << 40


@dataclass(frozen=True, slots=True)
class Meetings:
    """All collectives of a step in which every member of the group was seen.

    Args:
        rows: one a rank and collective, sorted so that those of one collective follow each other;
            rank, start_s, end_s (from one origin).
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


def meetings(records: Sequence[StepRecord]) -> Meetings:
    """Put the collectives of all ranks of one step together, each on its own host's clock.

    Args:
        records: one a rank.
    """
    number: dict[str, int] = {}
    talking = [one for one in records if len(one.collectives) and one.groups]
    if not talking:
        return _none()
    # As plain bytes: joining structures compares their fields a thousand times.
    raw = [np.ascontiguousarray(one.collectives).view(_AS_BYTES) for one in talking]
    table = np.concatenate(raw).view(COLLECTIVE)
    lengths = np.array([len(each) for each in raw])
    rank = np.repeat(np.array([one.rank for one in talking]), lengths)
    layouts: dict[tuple[tuple[str, int, int], ...], int] = {}
    first_group: list[int] = []
    names_at: list[int] = []
    sizes_at: list[int] = []
    for one in talking:
        if one.groups not in layouts:
            layouts[one.groups] = len(names_at)
            names_at += [number.setdefault(name, len(number)) for name, _, _ in one.groups]
            sizes_at += [size for _, size, _ in one.groups]
        first_group.append(layouts[one.groups])
    begin = np.repeat(np.array(first_group), lengths)
    many = np.repeat(np.array([len(one.groups) for one in talking]), lengths)
    known = (table["communicator"] >= 0) & (table["communicator"] < many)
    known &= (table["operation"] != _CONNECT) & (table["seq"] >= 0)
    if not known.all():
        table, rank, begin = table[known], rank[known], begin[known]
    if not len(table):
        return _none()
    place = begin + table["communicator"]
    group, size = np.array(names_at)[place], np.array(sizes_at)[place]
    origin_ns = int(table["start_ns"].min())
    # One number a collective: much sooner sorted than three columns. Ranks come in order already.
    seq = table["seq"] - table["seq"].min()
    kind = group * len(OPERATIONS) + table["operation"]
    span = int(seq.max()) + 1
    if span < _MOST_SPAN:
        label = kind * span + seq
    else:
        label = np.unique(np.stack([kind, seq]), axis=1, return_inverse=True)[1].reshape(-1)
    order = np.argsort(label, kind="stable")
    rank, group, size, label = rank[order], group[order], size[order], label[order]
    start_ns, end_ns = table["start_ns"][order], table["end_ns"][order]
    new = np.ones(len(table), dtype=bool)
    new[1:] = label[1:] != label[:-1]
    first = np.flatnonzero(new)
    count = np.diff(np.append(first, len(table)))
    # One that somebody has not reported says nothing of who came last.
    whole = (count == size[first]) & (count > 1)
    kept = np.repeat(whole, count) if not whole.all() else slice(None)
    first, count = first[whole], count[whole]
    starts = np.concatenate([[0], np.cumsum(count)])[:-1].astype(np.int64)
    return Meetings(
        rank=rank[kept],
        start_s=(start_ns[kept] - origin_ns) / 1e9,
        end_s=(end_ns[kept] - origin_ns) / 1e9,
        first=starts,
        size=count,
        group=group[first],
        operation=table["operation"][order[first]].astype(np.int64),
        size_bytes=table["size_bytes"][order[first]],
        names=tuple(number),
    )


def _none() -> Meetings:
    number, time_s = np.empty(0, np.int64), np.empty(0)
    return Meetings(number, time_s, time_s, number, number, number, number, number, ())


def on_one_clock(seen: Meetings, offset_s: Floats) -> Meetings:
    """The same with all times on the first host's clock.

    Args:
        offset_s: by rank, as ClockOffsets gives it for the rank's host.
    """
    shift = offset_s[seen.rank]
    return replace(seen, start_s=seen.start_s - shift, end_s=seen.end_s - shift)


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
        at_host = np.array([hosts.index(host_of[rank]) for rank in members])
        by_host = np.bincount(at_host, weights=left.mean(axis=0)) / np.bincount(at_host)
        shape = (operation, size_bytes, size, len(hosts))
        found.append(Transfer(hosts, shape, seconds, exit_s=tuple(by_host.tolist())))
    return found


class Clocks:
    """Offsets between hosts, from the newest meetings in which all of them took part."""

    def __init__(self) -> None:
        self._hosts: tuple[str, ...] = ()
        self._starts: deque[Floats] = deque(maxlen=_CLOCK_MEETINGS)
        self._ends: deque[Floats] = deque(maxlen=_CLOCK_MEETINGS)
        self._seen = 0
        self.offsets: ClockOffsets | None = None

    def offset_s(self, host_of: Sequence[str]) -> Floats:
        """By rank, s; 0 where nothing is known.

        Args:
            host_of: by rank.
        """
        if self.offsets is None:
            return np.zeros(len(host_of))
        known = dict(zip(self._hosts, np.nan_to_num(self.offsets.offset_s).tolist(), strict=True))
        return np.array([known.get(host, 0.0) for host in host_of])

    def table(self) -> dict[str, tuple[float, float]]:
        """Host -> (offset, standard error), s."""
        if self.offsets is None:
            return {}
        pairs = zip(self.offsets.offset_s.tolist(), self.offsets.sigma_s.tolist(), strict=True)
        return {h: p for h, p in zip(self._hosts, pairs, strict=True) if np.isfinite(p).all()}

    def update(self, plain: Meetings, host_of: Sequence[str]) -> None:
        """Take the meetings of one step, each on its own host's clock."""
        hosts = tuple(dict.fromkeys(host_of))
        if len(hosts) < 2:
            return
        if hosts != self._hosts:
            self._hosts, self.offsets = hosts, None
            self._starts.clear()
            self._ends.clear()
        number = {host: at for at, host in enumerate(hosts)}
        of_rank = np.array([number[host] for host in host_of], dtype=np.int64)
        # Only what all hosts can have met in, and of that a few.
        usable = np.isin(plain.operation, SYNCHRONISING) & (plain.size >= len(hosts))
        for at in np.flatnonzero(usable)[:_CLOCK_A_STEP]:
            rows = slice(int(plain.first[at]), int(plain.first[at] + plain.size[at]))
            if len(np.unique(of_rank[plain.rank[rows]])) < len(hosts):
                continue
            start, end = np.full(len(host_of), np.nan), np.full(len(host_of), np.nan)
            start[plain.rank[rows]], end[plain.rank[rows]] = plain.start_s[rows], plain.end_s[rows]
            self._starts.append(start)
            self._ends.append(end)
        self._seen += 1
        if self._starts and (self.offsets is None or self._seen % _CLOCK_EVERY == 0):
            self.offsets = estimate_offsets(np.stack(self._starts), np.stack(self._ends), of_rank)
