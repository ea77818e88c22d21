"""A worker fails: was it the node's own doing, or has another node been lost just before?"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from relkit.launch.spares.dead_member import has_lost_a_member
from relkit.launch.spares.membership import Membership
from relkit.launch.spares.torch_state import ATTRIBUTE

LIMIT_S = 4.0


@dataclass
class Handler:
    """What is read of torch's; each sync is a look, at which `changes` may change the state."""

    changes: Callable[[Handler], None] = lambda _handler: None
    now_s: float = 100.0
    membership: Membership = field(
        default_factory=lambda: Membership(round=1, members={"'a'": "a", "'b'": "b"})
    )
    beats: dict[str, Any] = field(default_factory=lambda: {"a": 1.0, "b": 1.0})

    def __post_init__(self) -> None:
        self._this_node, self._heartbeat_lock = "b", threading.Lock()
        self._state_holder = SimpleNamespace(sync=self._sync)

    def _sync(self) -> None:
        self.changes(self)
        state = {"last_heartbeats": self.beats, ATTRIBUTE: self.membership.encode()}
        self._state_holder.state = SimpleNamespace(**state)

    def pause(self, seconds: float) -> None:
        self.now_s += seconds


def lost(changes: Callable[[Handler], None]) -> tuple[bool, float]:
    """Whether a member was lost, and how long it took to know, s."""
    handler = Handler(changes)
    found = has_lost_a_member(handler, LIMIT_S, clock=lambda: handler.now_s, pause=handler.pause)
    return found, handler.now_s - 100.0


def beat(handler: Handler) -> None:
    handler.beats["a"] = handler.now_s


def test_a_node_whose_peers_live_has_failed_by_itself() -> None:
    assert lost(beat) == (False, LIMIT_S + 1.0)


def test_a_peer_that_gives_no_sign_of_life_is_lost() -> None:
    assert lost(lambda _handler: None) == (True, LIMIT_S)


def test_a_peer_that_others_have_found_dead_is_lost() -> None:
    def gone(handler: Handler) -> None:
        beat(handler)
        if handler.now_s > 101.0:
            handler.membership = handler.membership.without("'a'", "no sign of life for 4 s")
            handler.beats.pop("a", None)

    assert lost(gone) == (True, 1.5)


def test_a_peer_that_is_on_its_way_to_the_next_meeting_lives() -> None:
    def on_its_way(handler: Handler) -> None:
        handler.beats.pop("a", None)

    assert lost(on_its_way) == (False, LIMIT_S + 1.0)


def test_a_spare_that_is_lost_is_no_cause() -> None:
    def spare_dies(handler: Handler) -> None:
        beat(handler)
        handler.beats["c"] = 1.0

    assert lost(spare_dies) == (False, LIMIT_S + 1.0)
