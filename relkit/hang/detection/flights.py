"""Operations in flight, each as an object where it is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np

from relkit.hang.columns.operations import key_of, kind_of_operation
from relkit.hang.columns.ranks import FlightColumns, Ints, digest
from relkit.hang.model import RankView
from relkit.hook.model import HookState, Op


@dataclass(frozen=True, slots=True)
class Flight:
    """An operation in flight.

    Args:
        age_s: for how long it counts, s: without gaps in which the caller did not run.
        rank: who is in it; state: of its recorder; op: the operation.
    """

    age_s: float
    rank: int
    state: HookState
    op: Op


class Flights(Sequence[Flight]):
    """All operations in flight, made one by one where they are asked for.

    Args:
        columns: they; views: by rank, those of which more is known than there.
    """

    def __init__(self, columns: FlightColumns, views: Mapping[int, RankView]) -> None:
        self.columns, self._views = columns, views

    @classmethod
    def of(cls, flights: Sequence[Flight]) -> Flights:
        """The same flights as arrays."""
        if isinstance(flights, Flights):
            return flights
        rows = [
            (
                each.rank,
                key_of(each.op),
                digest(*kind_of_operation(each.op, each.state)),
                each.age_s,
            )
            for each in flights
        ]
        return _MadeFlights(FlightColumns.of(rows), flights)

    def told(self, places: Sequence[int] | Ints) -> list[Flight]:
        """Of these, those of which more is known."""
        flights = (self._told(place) for place in self._known(places))
        return [flight for flight in flights if flight is not None]

    def _known(self, places: Sequence[int] | Ints) -> Iterable[int]:
        """Those of ranks of which more is known: in a large job few."""
        told = [rank for rank, view in self._views.items() if view.hook is not None]
        where: Ints = np.asarray(places, np.int64)
        return map(int, where[np.isin(self.columns.rank[where], told)])

    def _told(self, place: int) -> Flight | None:
        columns = self.columns
        rank, key = int(columns.rank[place]), int(columns.key[place])
        view = self._views.get(rank)
        if view is not None and view.hook is not None:
            for op in view.hook.in_flight:
                if key_of(op) == key:
                    return Flight(float(columns.age_s[place]), rank, view.hook, op)
        return None

    def __len__(self) -> int:
        return len(self.columns)

    @overload
    def __getitem__(self, place: int) -> Flight: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[Flight]: ...

    def __getitem__(self, place: int | slice) -> Flight | Sequence[Flight]:
        if isinstance(place, slice):
            return self.told(range(len(self))[place])
        (flight,) = self.told([range(len(self))[place]])
        return flight


class _MadeFlights(Flights):
    """Of flights that there are as objects."""

    def __init__(self, columns: FlightColumns, flights: Sequence[Flight]) -> None:
        super().__init__(columns, {})
        self._flights = flights

    def _known(self, places: Sequence[int] | Ints) -> Iterable[int]:
        return map(int, places)

    def _told(self, place: int) -> Flight | None:
        return self._flights[place]
