"""Of which ranks a leader wants to know all, where something seems wrong: not of all, if many."""

from __future__ import annotations

import numpy as np

from relkit.hang.columns.ranks import Flags, FlightColumns, Ints, RankColumns
from relkit.ranks import RankSet

# Up to so many ranks each is asked for: verdicts on small jobs lean on everything.
ALL_UP_TO = 512
# Of more, so many; and how many of these stand out, while the others wait.
SOME, STAND_OUT = 64, 48
# Once a verdict is near, so many more: likely members of their groups.
MATES = ALL_UP_TO - SOME


def whom_to_ask(ranks: RankColumns, flights: FlightColumns, near: int = 0) -> RankSet:
    """Those that may be at fault, then some that wait, of every kind of operation.

    Args:
        ranks: of the job; flights: what is in flight in it, for how long.
        near: the first so many of the ranks are not to be asked for.
    """
    rank = ranks.rank[near:]
    if len(rank) <= ALL_UP_TO:
        return RankSet.of(rank.tolist())
    alive, stopped = ranks.alive[near:], ranks.stopped[near:]
    # By rank, and not in order: sorting is what costs time in a large job.
    in_flight = np.zeros(ranks.room, np.bool_)
    in_flight[flights.rank] = True
    waits = in_flight[rank]
    stands_out = np.concatenate(
        [
            rank[~alive & ~ranks.left[near:]],
            rank[alive & stopped],
            rank[alive & ~stopped & ~waits],
        ]
    )[:STAND_OUT]
    others = np.zeros(ranks.room, np.bool_)
    others[rank] = True
    others[stands_out] = False
    waiting = _waiting(others[flights.rank], flights, SOME - len(stands_out))
    return RankSet.of([*stands_out.tolist(), *waiting])


def _waiting(ours: Flags, flights: FlightColumns, count: int) -> list[int]:
    """Of these flights the longest waiting: of each kind first one, then a second, and so on."""
    rank, kind, age_s = flights.rank[ours], flights.kind[ours], flights.age_s[ours]
    order = np.lexsort((rank, -age_s, kind))
    kinds, first = np.unique(kind[order], return_index=True)
    turn: Ints = np.arange(len(order)) - np.repeat(first, np.diff([*first, len(order)]))
    # What began to wait first is nearest to the cause.
    by_turn = order[np.lexsort((-age_s[order], turn))]
    asked: dict[int, None] = {}
    for each in rank[by_turn][: count * max(1, len(kinds))].tolist():
        if len(asked) == count:
            break
        asked[each] = None
    return list(asked)
