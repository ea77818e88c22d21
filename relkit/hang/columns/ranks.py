"""What a look needs of each rank, a column a fact."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.uint64]
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

_STOPPED = tuple(map(ord, "Tt"))


def digest(*parts: object) -> int:
    """The same number of 32 bits on every host for equal parts: integers and strings."""
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=4).digest(), "little")


def sorted_order(ids: Numbers) -> Ints | None:
    """What puts them in order; None where they are: those of a large job nearly always."""
    if bool((ids[1:] >= ids[:-1]).all()):
        return None
    order: Ints = np.argsort(ids, kind="stable")
    return order


def places_in(ordered: Numbers, ids: Numbers) -> tuple[Ints, Flags]:
    """Where each of some numbers is in an ordered array, and whether it is there at all."""
    if not len(ordered):
        return np.zeros(len(ids), np.int64), np.zeros(len(ids), np.bool_)
    # In a stall it is the same operations at each look.
    if np.array_equal(ordered, ids):
        return np.arange(len(ids)), np.ones(len(ids), np.bool_)
    places = np.minimum(np.searchsorted(ordered, ids), len(ordered) - 1)
    return places, ordered[places] == ids


def process_numbers(hosts: Numbers, pids: npt.NDArray[Any]) -> Numbers:
    """Tell the processes that may stand under a rank's number from each other; none is 0.

    Args:
        hosts: digests of their names, one a process; pids: of 32 bits.
    """
    # One bit less of the host, so that there is room for the one that is added.
    high = (hosts >> np.uint64(1)) << np.uint64(32)
    return (high | pids.astype(np.uint64)) + np.uint64(1)


@dataclass(frozen=True, slots=True, eq=False)
class FlightColumns:
    """Operations in flight on ranks that live.

    Args:
        rank: who is in it; key: tells it from the rank's others (a digest); kind: digest of what
            takes alike long in each step; age_s: for how long, s.
    """

    rank: Ints
    key: Numbers
    kind: Numbers
    age_s: Floats

    def __len__(self) -> int:
        return len(self.rank)

    @property
    def ids(self) -> Numbers:
        """One number an operation of the whole job."""
        return (self.rank.astype(np.uint64) << np.uint64(32)) | self.key

    @classmethod
    def of(cls, rows: Sequence[tuple[int, int, int, float]]) -> FlightColumns:
        """From (rank, key, kind, age) a row."""
        ranks, keys, kinds, ages = zip(*rows, strict=True) if rows else ((), (), (), ())
        return cls(
            np.array(ranks, np.int64),
            np.array(keys, np.uint64),
            np.array(kinds, np.uint64),
            np.array(ages, np.float64),
        )


@dataclass(frozen=True, slots=True, eq=False)
class RankColumns:
    """All ranks at one look, in any order.

    Args:
        rank: number; process: which process of which host it is (a digest and the pid).
        alive: it exists; state: letter of its process as a code point, 0 where gone.
        left: it ended with exit code 0.
        known: it lives, and has a recorder; unheard: it lives, and a source that has spoken of it
            knows nothing of it any more; set_up: all that it has begun is to make its groups.
        started, finished: operations since its start, 0 without a recorder.
        idle_s: since it finished one, s.
        used_s, window_s, waited_s: of the CPUs, see CpuUse.
        flights: what is in flight.
    """

    rank: Ints
    process: Numbers
    alive: Flags
    state: Ints
    left: Flags
    known: Flags
    unheard: Flags
    set_up: Flags
    started: Ints
    finished: Ints
    idle_s: Floats
    used_s: Floats
    window_s: Floats
    waited_s: Floats
    flights: FlightColumns

    def __len__(self) -> int:
        return len(self.rank)

    @property
    def stopped(self) -> Flags:
        """Stopped by a signal."""
        stopped: Flags = np.isin(self.state, _STOPPED)
        return stopped

    @property
    def operations(self) -> Ints:
        """Begun and finished."""
        return self.started + self.finished

    @property
    def room(self) -> int:
        """Length of an array with a place for each rank."""
        return int(self.rank.max()) + 1 if len(self) else 0
