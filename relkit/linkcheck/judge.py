"""Measurements -> verdicts: which links are bad, which pairings would tell more, who is to blame.

Pure. The rule for the node is the guide's: it fails when fewer than the minimum of its links are
good, and a link is at fault when its bandwidth is below the minimum.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from relkit.findings import Status
from relkit.linkcheck.blame import blame_pair
from relkit.linkcheck.model import (
    INCONCLUSIVE,
    Checked,
    Failure,
    LinkState,
    LinkVerdict,
    Measurement,
    NodeVerdict,
    Pair,
)

_WORST_LAST = (LinkState.GOOD, LinkState.UNKNOWN, LinkState.SLOW, LinkState.LOST)


def state_of(measurement: Measurement, min_bandwidth_mb_s: float) -> LinkState:
    """What one measurement says of its direction; exactly the minimum is good."""
    if measurement.failure in INCONCLUSIVE:
        return LinkState.UNKNOWN
    if measurement.failure is not Failure.NONE:
        return LinkState.LOST
    return LinkState.GOOD if measurement.bandwidth_mb_s >= min_bandwidth_mb_s else LinkState.SLOW


def judge_links(
    pairs: Sequence[Pair], measurements: Iterable[Measurement], min_bandwidth_mb_s: float
) -> tuple[LinkVerdict, ...]:
    """One verdict a pair: the worse of its two directions. What was not measured is unknown."""
    by_direction = {(m.source, m.target): m for m in measurements}
    verdicts = []
    for pair in pairs:
        there, back = (
            by_direction.get(ends) or Measurement(*ends, failure=Failure.NOT_RECORDED)
            for ends in pair.directions
        )
        states = [state_of(m, min_bandwidth_mb_s) for m in (there, back)]
        verdicts.append(LinkVerdict(pair, max(states, key=_WORST_LAST.index), there, back))
    return tuple(verdicts)


def second_pairing(links: Sequence[LinkVerdict], sockets: Iterable[int]) -> tuple[Pair, ...]:
    """Pairings that tell the two ends of each bad pair apart.

    Each end of a bad pair is paired with a socket of a good pair. One more pairing joins sockets of
    two good pairs: where even that fails, this hardware has no way between boxes, and failures of
    the others mean nothing.

    Args:
        links: the verdicts of the first round.
        sockets: those that have a GPU; others need no test.
    """
    present = set(sockets)
    good = [link.pair for link in links if link.state is LinkState.GOOD]
    bad = [link.pair for link in links if link.state.is_bad]
    if not good or not bad:
        return ()
    crosses: list[Pair] = []
    for number, pair in enumerate(bad):
        partner = good[number % len(good)]
        for mine, theirs in zip(pair.sockets, partner.sockets, strict=True):
            if mine in present and mine != theirs:
                crosses.append(Pair(mine, theirs))
    if crosses and len(good) > 1:
        first, second = good[0].first, good[1].first
        crosses.append(Pair(first, second if second != first else good[1].second))
    # The user's own pairs may share sockets; what the first round has measured needs no second.
    known = {frozenset(link.pair.sockets) for link in links}
    wanted = {frozenset(pair.sockets): pair for pair in crosses}
    return tuple(pair for ends, pair in wanted.items() if ends not in known)


def judge(checked: Checked, min_bandwidth_mb_s: float, min_channels: int) -> NodeVerdict:
    """The whole verdict on this host.

    Args:
        checked: what was measured.
        min_bandwidth_mb_s: a direction below it is slow, MB/s.
        min_channels: links that must be good.
    """
    links = judge_links(checked.pairs, checked.measurements, min_bandwidth_mb_s)
    good = sum(link.state is LinkState.GOOD for link in links)
    unknown = sum(link.state is LinkState.UNKNOWN for link in links)
    if good >= min_channels:
        status = Status.OK
    else:
        status = Status.UNKNOWN if good + unknown >= min_channels else Status.FAIL
    first = {(m.source, m.target): state_of(m, min_bandwidth_mb_s) for m in checked.measurements}
    crosses = {(m.source, m.target): state_of(m, min_bandwidth_mb_s) for m in checked.crosses}
    blames = [
        blame
        for link in links
        if link.state.is_bad
        for blame in blame_pair(link.pair, first, crosses, checked.inventory)
    ]
    return NodeVerdict(status, good, min_channels, links, tuple(blames))
