"""A worker fails: was it the node's own doing, or has another node been lost just before?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from relkit.launch.spares.dead_member import has_lost_a_member
from relkit.launch.spares.membership import Membership

LIMIT_S = 4.0


@dataclass
class Rendezvous:
    """What node b sees of node a; before each look `changes` may change it."""

    changes: Callable[[Rendezvous], None]
    now_s: float = 100.0
    membership: Membership = field(
        default_factory=lambda: Membership(round=1, members={"a": "node a", "b": "node b"})
    )
    beats: dict[str, object] = field(default_factory=lambda: {"a": 1.0})

    def look(self) -> tuple[Membership, dict[str, object]]:
        self.changes(self)
        return self.membership, dict(self.beats)

    def pause(self, seconds: float) -> None:
        self.now_s += seconds


def lost(changes: Callable[[Rendezvous], None]) -> tuple[bool, float]:
    """Whether node b sees that a member was lost, and how long it took to know, s."""
    seen = Rendezvous(changes)
    found = has_lost_a_member(seen.look, LIMIT_S, clock=lambda: seen.now_s, pause=seen.pause)
    return found, seen.now_s - 100.0


def beat(seen: Rendezvous) -> None:
    seen.beats["a"] = seen.now_s


def test_a_node_whose_peers_live_has_failed_by_itself() -> None:
    assert lost(beat) == (False, LIMIT_S + 1.0)


def test_a_peer_that_gives_no_sign_of_life_is_lost() -> None:
    assert lost(lambda _seen: None) == (True, LIMIT_S)


def test_a_peer_that_others_have_found_dead_is_lost() -> None:
    def gone(seen: Rendezvous) -> None:
        beat(seen)
        if seen.now_s > 101.0:
            seen.membership = seen.membership.without("a", "no sign of life for 4 s")
            seen.beats.pop("a", None)

    assert lost(gone) == (True, 1.5)


def test_a_peer_that_is_on_its_way_to_the_next_meeting_lives() -> None:
    def on_its_way(seen: Rendezvous) -> None:
        seen.beats.pop("a", None)

    assert lost(on_its_way) == (False, LIMIT_S + 1.0)


def test_a_spare_that_is_lost_is_no_cause() -> None:
    def spare_dies(seen: Rendezvous) -> None:
        beat(seen)
        seen.beats["c"] = 1.0

    assert lost(spare_dies) == (False, LIMIT_S + 1.0)
