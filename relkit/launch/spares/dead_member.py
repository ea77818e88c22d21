"""Whether a launcher has died in the seconds before a worker elsewhere failed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from relkit.launch.job.silence import Silence
from relkit.launch.spares.membership import Membership, decode
from relkit.launch.spares.torch_state import ATTRIBUTE, heartbeats_of

# Between two looks, s: a heartbeat comes every second or less often.
_LOOK_S = 0.5
# Beyond the silence that makes a node dead, s: for the first look and the last.
_MARGIN_S = 1.0

# Its members, and the newest heartbeat of each other node that has one.
RendezvousLook = tuple[Membership, Mapping[str, object]]


def look_at(handler: Any) -> RendezvousLook:  # noqa: ANN401 (torch's DynamicRendezvousHandler)
    """What a rendezvous shows now: one exchange with its store."""
    with handler._heartbeat_lock:
        handler._state_holder.sync()
        state = handler._state_holder.state
        beats = heartbeats_of(state)
        beats.pop(repr(handler._this_node), None)
        return decode(getattr(state, ATTRIBUTE, "")), beats


def has_lost_a_member(
    look: Callable[[], RendezvousLook],
    limit_s: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> bool:
    """Wait until it is known whether a node of the job is gone, or dead.

    A worker whose peer has died fails within a second. That its peer's launcher is dead as well is
    known only once that has been silent for long enough.

    Args:
        look: reads the rendezvous.
        limit_s: a node is dead after so long without a sign of life, s.
    """
    silence = Silence(limit_s)
    end_s = clock() + limit_s + _MARGIN_S
    while True:
        membership, beats = look()
        # A node on its way out or in has none: it lives.
        others = membership.expected & beats.keys()
        if membership.gone or silence.silent(others, beats, clock()):
            return True
        if clock() >= end_s:
            return False
        pause(_LOOK_S)
