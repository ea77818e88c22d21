"""Which end of a bad pair is at fault, from the second pairing. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from relkit.linkcheck.model import Blame, FaultPlace, Inventory, LinkState, Pair, Way

Directed = Mapping[tuple[int, int], LinkState]
_BEST_FIRST = (LinkState.GOOD, LinkState.SLOW, LinkState.LOST, LinkState.UNKNOWN)


@dataclass(frozen=True, slots=True)
class _Others:
    """What the two ends of a pair do in all pairings but their own."""

    states: Directed
    # Two sockets of different boxes may have no way to each other by design. One such way that
    # works proves that they have.
    can_cross: bool

    def of(self, socket: int, way: Way) -> LinkState | None:
        """The best state of a socket, one way: good with anybody clears it. None: not measured."""
        end = 0 if way is Way.OUT else 1
        states = [state for ends, state in self.states.items() if ends[end] == socket]
        return min(states, key=_BEST_FIRST.index) if states else None

    def accuse(self, socket: int, way: Way) -> bool:
        """Whether the socket is bad in every other pairing, and those mean something."""
        state = self.of(socket, way)
        return self.can_cross and state is not None and state.is_bad

    def reason(self, socket: int) -> str:
        """The sentence for an accused socket."""
        partners = sorted({end for ends in self.states if socket in ends for end in ends})
        names = " and ".join(str(end) for end in partners if end != socket)
        return f"socket {socket} is bad with socket {names} too, which is good elsewhere"


def blame_pair(pair: Pair, first: Directed, crosses: Directed, inventory: Inventory) -> list[Blame]:
    """Where the fault of one bad pair lies.

    Args:
        pair: the bad pair.
        first: states of the first round by (source, target); crosses: of the second pairing.
        inventory: which sockets have a GPU at all.

    Returns:
        One blame for each end at fault, or one for the box between, or one that is inconclusive.
    """
    own = set(pair.sockets)
    shared = {ends: state for ends, state in first.items() if len(own & set(ends)) == 1}
    states = {**shared, **crosses}
    others = _Others(states, any(state is LinkState.GOOD for state in states.values()))
    absent = [end for end in pair.sockets if end not in inventory.gpu_of]
    if absent:
        return [_absent(pair, end, inventory) for end in absent] + _peers(pair, absent, others)

    ways: dict[int, list[Way]] = {}
    between = False
    open_reasons: list[str] = []
    for source, target in pair.directions:
        if not first.get((source, target), LinkState.UNKNOWN).is_bad:
            continue
        accused = [
            (end, way)
            for end, way in ((source, Way.OUT), (target, Way.IN))
            if others.accuse(end, way)
        ]
        for end, way in accused:
            ways.setdefault(end, []).append(way)
        if others.of(source, Way.OUT) is others.of(target, Way.IN) is LinkState.GOOD:
            between = True
        elif not accused:
            open_reasons.append(_why_open(source, target, others))
    blames = [_socket(pair, end, bad_ways, others) for end, bad_ways in ways.items()]
    if between:
        reason = "each end is good with a socket of another box, and only this pairing is bad"
        blames.append(Blame(FaultPlace.BOX, pair.sockets, pair, reasons=(reason,)))
    if not blames:
        reasons = tuple(dict.fromkeys(open_reasons))
        blames.append(Blame(FaultPlace.INCONCLUSIVE, pair.sockets, pair, reasons=reasons))
    return blames


def _socket(pair: Pair, end: int, ways: list[Way], others: _Others) -> Blame:
    way = ways[0] if len(ways) == 1 else Way.BOTH
    return Blame(FaultPlace.SOCKET, (end,), pair, way, (others.reason(end),))


def _absent(pair: Pair, end: int, inventory: Inventory) -> Blame:
    claims = inventory.claims.get(end, ())
    reason = "the layout has no GPU at this socket"
    if claims:
        reason = f"GPUs {', '.join(map(str, claims))} all claim this socket in the layout"
    return Blame(FaultPlace.SOCKET, (end,), pair, Way.BOTH, (reason,))


def _peers(pair: Pair, absent: list[int], others: _Others) -> list[Blame]:
    """The peer of a missing GPU, which has only its other pairings to be judged by."""
    blames = []
    for end in set(pair.sockets) - set(absent):
        ways = [way for way in (Way.OUT, Way.IN) if others.accuse(end, way)]
        if ways:
            blames.append(_socket(pair, end, ways, others))
    return blames


def _why_open(source: int, target: int, others: _Others) -> str:
    if others.of(source, Way.OUT) is None and others.of(target, Way.IN) is None:
        return "there is no proven socket to try each end with"
    if not others.can_cross:
        return "no pairing across boxes worked, so these boxes may have no way to each other"
    return "the second pairing says nothing about one of the ends"
