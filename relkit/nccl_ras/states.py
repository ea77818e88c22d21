"""What NCCL's RAS says of a job -> what ranks are judged by; pure.

RAS counts the collectives that a rank has launched, by kind, and does not say which have ended. A
rank that has launched one that another member has not is in it: it cannot end before that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from relkit.hook.model import Communicator, HookState, Op, OpKind
from relkit.nccl_ras.model import RasAnswer, RasCommunicator, RasRank

# Where a rank is ahead by collectives of several kinds, which of them is first is not known.
_UNKNOWN = "collective"


@dataclass(frozen=True, slots=True)
class Place:
    """One rank of one communicator."""

    communicator: RasCommunicator
    rank: RasRank

    @property
    def ahead(self) -> int:
        """Collectives that it has launched and another member has not."""
        return self.rank.total - self.communicator.lowest


def places_of(answer: RasAnswer, host_is_ours: frozenset[str], pid: int) -> tuple[Place, ...]:
    """All places of one process of this host, the largest communicators first.

    Args:
        host_is_ours: addresses of this host; pid: of the process.
    """
    places = [
        Place(communicator, rank)
        for communicator in answer.communicators
        for rank in communicator.ranks
        if rank.pid == pid and rank.host in host_is_ours
    ]
    return tuple(sorted(places, key=lambda p: (-p.communicator.size, p.communicator.name)))


def state_of(
    places: Sequence[Place], *, rank: int, world_size: int, now_ns: int
) -> HookState | None:
    """A rank as RAS sees it; None where that says nothing.

    Args:
        places: of its process; rank: in the job; world_size: ranks of the job.
        now_ns: Unix time of the answer, ns.
    """
    if not any(place.rank.total for place in places):
        return None
    groups, flying = [], []
    for index, place in enumerate(places):
        total = place.rank.total
        groups.append(
            Communicator(
                index, place.rank.rank, place.communicator.size, place.communicator.name, total - 1
            )
        )
        if place.ahead:
            name, number = _oldest_of(place), place.communicator.lowest
            flying.append(Op(name, OpKind.COLLECTIVE, number, index, 0, 0, now_ns))
    done = sum(place.rank.total for place in places)
    return HookState(
        pid=places[0].rank.pid,
        start_ticks=0,
        rank=rank,
        local_rank=-1,
        world_size=world_size,
        now_ns=now_ns,
        boot_to_unix_ns=0,
        started=done,
        finished=done - len(flying),
        last_finish_ns=0,
        in_flight=tuple(flying),
        communicators=tuple(groups),
    )


def _oldest_of(place: Place) -> str:
    """The kind of the first collective that a rank has launched and the last one has not."""
    last = min(place.communicator.ranks, key=lambda rank: rank.total)
    ahead = {
        name: count - last.launched.get(name, 0)
        for name, count in place.rank.launched.items()
        if count > last.launched.get(name, 0)
    }
    return next(iter(ahead)).lower() if len(ahead) == 1 else _UNKNOWN


def words_of(places: Sequence[Place]) -> str:
    """`142 collectives launched; in communicator 0x5d1 (8 ranks) 2 more than its last rank`."""
    total = sum(place.rank.total for place in places)
    words = [f"{total} collectives launched"]
    for place in places:
        where = f"communicator {place.communicator.name.partition(':')[0]}"
        most = max(rank.total for rank in place.communicator.ranks)
        if place.ahead:
            words.append(f"in {where} {place.ahead} more than its last rank")
        elif most > place.rank.total:
            words.append(f"in {where} {most - place.rank.total} fewer than its first rank")
        if place.rank.state != "running":
            words.append(f"{where} is {place.rank.state}")
        if place.rank.error:
            words.append(f"{where} has error {place.rank.error}")
    return "; ".join(words)


def has_stood(before: RasAnswer, after: RasAnswer) -> bool:
    """Nobody has launched anything between two answers."""
    return _counts(before) == _counts(after)


def _counts(answer: RasAnswer) -> dict[tuple[str, int], int]:
    return {
        (each.name, rank.rank): rank.total for each in answer.communicators for rank in each.ranks
    }
