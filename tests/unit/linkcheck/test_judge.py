"""The verdict on links: the guide's rule, both directions, and which end is at fault."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relkit.findings import Status
from relkit.linkcheck.blame import blame_pair
from relkit.linkcheck.check import check_links
from relkit.linkcheck.judge import judge, second_pairing, state_of
from relkit.linkcheck.model import (
    Checked,
    Counter,
    Failure,
    FaultPlace,
    Inventory,
    LinkState,
    Measurement,
    NodeVerdict,
    Pair,
    Way,
)
from relkit.linkcheck.pairs import DEFAULT_PAIRS, parse_pairs

PAIRS = parse_pairs([DEFAULT_PAIRS])
EIGHT = Inventory({socket: 7 - socket for socket in range(8)})


class World:
    """A host whose faults are known: bad senders, bad receivers, bad boxes, no way across boxes."""

    name = "world"
    timeout_s = 1.0

    def __init__(
        self,
        senders: frozenset[int] = frozenset(),
        receivers: frozenset[int] = frozenset(),
        boxes: frozenset[Pair] = frozenset(),
        can_cross: bool = True,
        failure: Failure = Failure.NONE,
    ) -> None:
        self.senders, self.receivers, self.boxes = senders, receivers, boxes
        self.can_cross, self.failure = can_cross, failure

    def look(self, timeout_s: float) -> Inventory:
        return EIGHT

    def counters(self, timeout_s: float) -> tuple[Counter, ...]:
        return ()

    def measure(self, source: int, target: int, timeout_s: float) -> Measurement:
        pair = next((p for p in PAIRS if set(p.sockets) == {source, target}), None)
        is_bad = source in self.senders or target in self.receivers
        is_bad |= pair in self.boxes if pair else not self.can_cross
        if not is_bad:
            return Measurement(source, target, 12000.0)
        if self.failure is not Failure.NONE:
            return Measurement(source, target, failure=self.failure)
        return Measurement(source, target, 900.0)


def verdict_of(world: World, inventory: Inventory = EIGHT, min_channels: int = 2) -> NodeVerdict:
    checked = check_links(world, inventory, PAIRS, min_bandwidth_mb_s=10000.0)
    return judge(checked, 10000.0, min_channels)


@pytest.mark.parametrize(
    ("bandwidth", "failure", "state"),
    [
        (9999.9999, Failure.NONE, LinkState.SLOW),
        (10000.0, Failure.NONE, LinkState.GOOD),
        (0.0, Failure.NONE, LinkState.SLOW),
        (0.0, Failure.TIMEOUT, LinkState.LOST),
        (0.0, Failure.TOOL_FAILED, LinkState.LOST),
        (0.0, Failure.NO_GPU, LinkState.LOST),
        (0.0, Failure.NO_FIGURE, LinkState.UNKNOWN),
        (0.0, Failure.NOT_STARTED, LinkState.UNKNOWN),
        (0.0, Failure.NOT_RECORDED, LinkState.UNKNOWN),
    ],
)
def test_the_bound_itself_is_not_enough(
    bandwidth: float, failure: Failure, state: LinkState
) -> None:
    assert state_of(Measurement(0, 1, bandwidth, failure), 10000.0) is state


@pytest.mark.parametrize(
    ("good", "unknown", "minimum", "status"),
    [
        (4, 0, 2, Status.OK),
        (2, 0, 2, Status.OK),
        (1, 0, 2, Status.FAIL),
        (1, 1, 2, Status.UNKNOWN),
        (0, 1, 2, Status.FAIL),
        (0, 4, 1, Status.UNKNOWN),
        (2, 2, 2, Status.OK),
        (3, 0, 4, Status.FAIL),
    ],
)
def test_the_host_fails_when_too_few_links_are_good(
    good: int, unknown: int, minimum: int, status: Status
) -> None:
    measurements: list[Measurement] = []
    for number, pair in enumerate(PAIRS):
        for ends in pair.directions:
            if number < good:
                measurements.append(Measurement(*ends, 12000.0))
            elif number < good + unknown:
                measurements.append(Measurement(*ends, failure=Failure.NO_FIGURE))
            else:
                measurements.append(Measurement(*ends, 1.0))
    verdict = judge(Checked("t", EIGHT, PAIRS, tuple(measurements)), 10000.0, minimum)
    assert verdict.status is status
    assert verdict.good == good


@pytest.mark.parametrize("failure", [Failure.NONE, Failure.TIMEOUT, Failure.TOOL_FAILED])
@pytest.mark.parametrize("socket", range(8))
def test_one_bad_socket_is_found_and_its_peer_cleared(socket: int, failure: Failure) -> None:
    bad = frozenset({socket})
    for world, way in (
        (World(bad, bad, failure=failure), Way.BOTH),
        (World(senders=bad, failure=failure), Way.OUT),
        (World(receivers=bad, failure=failure), Way.IN),
    ):
        verdict = verdict_of(world)
        assert verdict.status is Status.OK
        assert verdict.good == 3
        assert [(b.place, b.sockets, b.way) for b in verdict.blames] == [
            (FaultPlace.SOCKET, (socket,), way)
        ]


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_a_bad_box_is_told_from_bad_ends(pair: Pair) -> None:
    verdict = verdict_of(World(boxes=frozenset({pair})))
    assert [(b.place, b.sockets) for b in verdict.blames] == [(FaultPlace.BOX, pair.sockets)]


def test_both_ends_bad_are_both_blamed() -> None:
    both = frozenset({2, 4})
    verdict = verdict_of(World(both, both))
    assert sorted(b.sockets for b in verdict.blames) == [(2,), (4,)]


def test_where_boxes_are_not_joined_nobody_is_blamed_for_it() -> None:
    bad = frozenset({2})
    verdict = verdict_of(World(bad, bad, can_cross=False))
    (blame,) = verdict.blames
    assert (blame.place, blame.sockets) == (FaultPlace.INCONCLUSIVE, (2, 4))
    assert "no way to each other" in blame.reasons[0]


def test_when_no_pair_is_good_nothing_can_be_proven() -> None:
    verdict = verdict_of(World(frozenset(range(8))))
    assert verdict.status is Status.FAIL
    assert {blame.place for blame in verdict.blames} == {FaultPlace.INCONCLUSIVE}


def test_a_socket_without_gpu_is_blamed_and_never_measured() -> None:
    inventory = Inventory({s: s for s in range(8) if s != 4}, {4: (1, 2)})
    verdict = verdict_of(World(), inventory)
    (blame,) = verdict.blames
    assert (blame.place, blame.sockets) == (FaultPlace.SOCKET, (4,))
    assert blame.reasons == ("GPUs 1, 2 all claim this socket in the layout",)


def test_the_peer_of_a_missing_gpu_is_looked_at_too() -> None:
    inventory = Inventory({s: s for s in range(8) if s != 4})
    verdict = verdict_of(World(frozenset({2})), inventory)
    assert [(b.sockets, b.way) for b in verdict.blames] == [((4,), Way.BOTH), ((2,), Way.OUT)]


def test_pairs_that_share_sockets_clear_each_other() -> None:
    pairs = parse_pairs(["0:1 0:2 0:3 1:2 1:3 2:3"])
    bad = frozenset({0})
    checked = check_links(World(bad, bad), EIGHT, pairs, min_bandwidth_mb_s=10000.0)
    assert checked.crosses == ()
    blames = judge(checked, 10000.0, 2).blames
    assert {b.sockets for b in blames} == {(0,)}


def test_a_healthy_host_needs_no_second_pairing() -> None:
    checked = check_links(World(), EIGHT, PAIRS, min_bandwidth_mb_s=10000.0)
    assert checked.crosses == ()
    links = judge(checked, 10000.0, 2).links
    assert second_pairing(links, EIGHT.gpu_of) == ()


def test_an_empty_socket_is_in_no_second_pairing() -> None:
    """Sockets 2 and 4 are a bad pair; 4 has no GPU, so there is nothing to measure at it."""
    inventory = Inventory({s: s for s in range(8) if s != 4})
    checked = check_links(World(), inventory, PAIRS, min_bandwidth_mb_s=10000.0)
    links = judge(checked, 10000.0, 2).links
    pairs = second_pairing(links, inventory.gpu_of)
    assert any(2 in pair.sockets for pair in pairs)
    assert not any(4 in pair.sockets for pair in pairs)


@pytest.mark.parametrize("way", [(0, 1), (1, 0)])
def test_an_end_that_is_good_with_anybody_is_cleared(way: tuple[int, int]) -> None:
    """Socket 0 is good with 2 and bad with 3; socket 1 is bad with both."""
    good, lost = LinkState.GOOD, LinkState.LOST
    crosses = {(0, 2): good, (2, 0): good, (0, 3): lost, (3, 0): lost}
    crosses |= {(1, 2): lost, (2, 1): lost, (1, 3): lost, (3, 1): lost}
    blames = blame_pair(Pair(0, 1), {way: lost}, crosses, EIGHT)
    assert [(blame.place, blame.sockets) for blame in blames] == [(FaultPlace.SOCKET, (1,))]


SOCKETS = st.frozensets(st.integers(0, 7), max_size=3)


@given(SOCKETS, SOCKETS, st.frozensets(st.sampled_from(PAIRS), max_size=2), st.booleans())
def test_blame_is_never_false_and_complete_where_it_can_be(
    senders: frozenset[int], receivers: frozenset[int], boxes: frozenset[Pair], can_cross: bool
) -> None:
    world = World(senders, receivers, boxes, can_cross)
    checked = check_links(world, EIGHT, PAIRS, min_bandwidth_mb_s=10000.0)
    verdict = judge(checked, 10000.0, 2)
    bad = {link.pair for link in verdict.links if link.state.is_bad}
    expected = {
        pair for pair in PAIRS if pair in boxes or set(pair.sockets) & (senders | receivers)
    }
    assert bad == expected
    assert {blame.pair for blame in verdict.blames} == bad
    for blame in verdict.blames:
        if blame.place is FaultPlace.SOCKET:
            (socket,) = blame.sockets
            assert blame.way is Way.IN or socket in senders
            assert blame.way is Way.OUT or socket in receivers
        elif blame.place is FaultPlace.BOX:
            assert blame.pair in boxes
    # With a good pair and a way across, the only open question is a box whose ends are bad too.
    if can_cross and len(bad) < len(PAIRS):
        assert all(blame.place is not FaultPlace.INCONCLUSIVE for blame in verdict.blames)
        blamed = {b.sockets[0] for b in verdict.blames if b.place is FaultPlace.SOCKET}
        assert blamed == senders | receivers
