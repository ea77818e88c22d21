"""Which operations hosts shared, and who came last to each: gathered rank after rank, bounded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from relkit.timeline.calls import Calls, Codes, Ints
from relkit.timeline.clock_bounds import SharedOperation
from relkit.timeline.model import Rows

# Rows that are kept in each table: 40 and 56 bytes each.
MAX_ROWS = 1 << 20
_ALL = np.uint64(0xFFFF_FFFF_FFFF_FFFF)
_ONE = np.uint64(1)

_SIGHT = np.dtype([("key", "<u8"), ("host", "<i4"), ("sent_ns", "<i8"), ("heard_ns", "<i8")])
_NEVER = np.int64(np.iinfo(np.int64).max)


class _Sample:
    """Which keys are looked at: fewer and fewer, the same ones of every rank."""

    def __init__(self) -> None:
        self.most = _ALL

    def chosen(self, key: Codes) -> npt.NDArray[np.bool_]:
        """Those that are looked at."""
        return (key > 0) & (key <= self.most)

    def halve(self) -> None:
        """Look at half as many."""
        self.most >>= _ONE


class _Kept:
    """A table that is gathered rank after rank; where there is no room for it, a sample of it.

    Args:
        kind: of its rows, which have a `key`; max_rows: so many are kept.
        merged: makes one row of those that say of one thing, in the order of their keys.
    """

    def __init__(self, kind: np.dtype[Any], max_rows: int, merged: Callable[[Rows], Rows]) -> None:
        self._merged, self._max_rows = merged, max_rows
        self._rows: Rows = np.empty(0, kind)
        self._new: list[Rows] = []
        self.sample = _Sample()

    def add(self, rows: Rows) -> None:
        """Take what one rank did."""
        self._new.append(rows)
        if sum(map(len, self._new)) > self._max_rows // 4:
            self.rows()

    def rows(self) -> Rows:
        """All that is kept by now."""
        rows = np.concatenate([self._rows, *self._new])
        self._new.clear()
        rows = self._merged(rows)
        while len(rows) > self._max_rows // 2 and self.sample.most > 0:
            self.sample.halve()
            rows = rows[self.sample.chosen(rows["key"])]
        self._rows = rows
        return rows


class HostSightings:
    """What hosts saw of the operations that they shared.

    Args:
        max_rows: more are not kept: of some operations nothing is.
    """

    def __init__(self, max_rows: int = MAX_ROWS) -> None:
        self._kept = _Kept(_SIGHT, max_rows, _one_a_host)

    def add(self, host: int, calls: Calls) -> None:
        """Take what one rank did.

        Args:
            host: number of its clock.
        """
        useful = self._kept.sample.chosen(calls.key) & (calls.sends | calls.hears)
        rows = np.empty(int(useful.sum()), _SIGHT)
        rows["key"], rows["host"] = calls.key[useful], host
        rows["sent_ns"] = np.where(calls.sends, calls.start_ns, -1)[useful]
        rows["heard_ns"] = np.where(calls.hears, calls.end_ns, _NEVER)[useful]
        self._kept.add(rows)

    def operations(self) -> list[SharedOperation]:
        """Those that ranks of several hosts took part in."""
        rows = self._kept.rows()
        first = _changes(rows["key"])
        shared = []
        for begin, end in zip(first, [*first[1:], len(rows)], strict=True):
            if end - begin < 2:
                continue
            mine = rows[begin:end]
            heard = np.where(mine["heard_ns"] == _NEVER, -1, mine["heard_ns"])
            hosts = mine["host"].astype(np.int64)
            shared.append(SharedOperation(hosts, mine["sent_ns"].astype(np.int64), heard))
        return shared


def _one_a_host(rows: Rows) -> Rows:
    """One row a key and host."""
    rows = rows[np.lexsort((rows["host"], rows["key"]))]
    first = _changes(rows["key"], rows["host"])
    merged = rows[first]
    if len(first):
        merged["sent_ns"] = np.maximum.reduceat(rows["sent_ns"], first)
        merged["heard_ns"] = np.minimum.reduceat(rows["heard_ns"], first)
    return merged


_CALL = np.dtype(
    [
        ("key", "<u8"),
        ("count", "<i4"),
        ("first_rank", "<i4"),
        ("last_rank", "<i4"),
        ("first_ns", "<i8"),
        ("last_ns", "<i8"),
        ("second_ns", "<i8"),
    ]
)


class Arrivals:
    """When the ranks came to each collective, all on one clock.

    Args:
        max_rows: of more collectives nothing is known.
    """

    def __init__(self, max_rows: int = MAX_ROWS) -> None:
        self._kept = _Kept(_CALL, max_rows, _one_a_call)
        self._known = np.empty(0, _CALL)

    def add(self, rank: int, calls: Calls, offset_ns: int) -> None:
        """Take what one rank did.

        Args:
            offset_ns: its clock is ahead by.
        """
        useful = self._kept.sample.chosen(calls.key) & calls.is_collective
        rows = np.empty(int(useful.sum()), _CALL)
        rows["key"], rows["count"] = calls.key[useful], 1
        rows["first_rank"] = rows["last_rank"] = rank
        rows["first_ns"] = rows["last_ns"] = calls.start_ns[useful] - offset_ns
        rows["second_ns"] = -1
        self._kept.add(rows)

    @property
    def is_sample(self) -> bool:
        """There was no room for all."""
        return bool(self._kept.sample.most != _ALL)

    def finish(self) -> None:
        """No more is added."""
        self._known = self._kept.rows()

    def of(self, calls: Calls) -> Rows:
        """For each call the row of its collective; `count` 0 where not all of its ranks are known.

        Args:
            calls: of any rank.
        """
        out = np.zeros(len(calls.key), _CALL)
        if not len(self._known):
            return out
        at = np.minimum(np.searchsorted(self._known["key"], calls.key), len(self._known) - 1)
        rows = self._known[at]
        whole = (rows["key"] == calls.key) & (rows["count"] == calls.size) & calls.is_collective
        out[whole] = rows[whole]
        return out


def _one_a_call(rows: Rows) -> Rows:
    """One row a key, with who came first and last."""
    if not len(rows):
        return rows
    by_first = rows[np.lexsort((rows["first_ns"], rows["key"]))]
    first = _changes(by_first["key"])
    merged = by_first[first]
    by_last = rows[np.lexsort((rows["last_ns"], rows["key"]))]
    last = np.append(first[1:], len(rows)) - 1
    merged["last_ns"], merged["last_rank"] = by_last["last_ns"][last], by_last["last_rank"][last]
    before = np.where(last > first, by_last["last_ns"][np.maximum(last - 1, 0)], -1)
    merged["second_ns"] = np.maximum(before, np.maximum.reduceat(by_last["second_ns"], first))
    merged["count"] = np.add.reduceat(by_last["count"], first)
    return merged


def _changes(*columns: npt.NDArray[Any]) -> Ints:
    """Where any of the columns has another value than in the row before; 0 too."""
    if not len(columns[0]):
        return np.empty(0, np.int64)
    new = np.zeros(len(columns[0]), dtype=bool)
    new[0] = True
    for column in columns:
        new[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(new)


_SHORT = np.dtype(
    [("key", "<u8"), ("count", "<i4"), ("size", "<i4"), ("label", "<i4"), ("took_ns", "<i8")]
)


class Shortest:
    """How long each collective took whoever came last to it: no rank had to wait less.

    Args:
        max_rows: of more collectives nothing is known.
    """

    def __init__(self, max_rows: int = MAX_ROWS) -> None:
        self._kept = _Kept(_SHORT, max_rows, _shortest)

    def add(self, key: Codes, size: Ints, label: Ints, took_ns: Ints) -> None:
        """Take what one rank did.

        Args:
            size: how many ranks take part; label: of the sort of each.
        """
        useful = self._kept.sample.chosen(key)
        rows = np.empty(int(useful.sum()), _SHORT)
        rows["key"], rows["count"], rows["size"] = key[useful], 1, size[useful]
        rows["label"], rows["took_ns"] = label[useful], took_ns[useful]
        self._kept.add(rows)

    def by_label(self) -> Iterator[tuple[int, Ints]]:
        """(label, durations of those of which all ranks are known)."""
        rows = self._kept.rows()
        rows = rows[rows["count"] == rows["size"]]
        for label in np.unique(rows["label"]).tolist():
            yield label, rows["took_ns"][rows["label"] == label].astype(np.int64)


def _shortest(rows: Rows) -> Rows:
    """One row a key, with the least that any rank took."""
    rows = rows[np.lexsort((rows["took_ns"], rows["key"]))]
    first = _changes(rows["key"])
    merged = rows[first]
    if len(first):
        merged["count"] = np.add.reduceat(rows["count"], first)
    return merged
