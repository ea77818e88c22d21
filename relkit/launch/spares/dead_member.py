"""Whether a launcher has died in the seconds before a worker elsewhere failed."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from relkit.launch.job.silence import Silence
from relkit.launch.spares.membership import Membership, decode
from relkit.launch.spares.torch_state import ATTRIBUTE

# Between two looks, s: a heartbeat comes every second or less often.
_LOOK_S = 0.5
# Beyond the silence that makes a node dead, s: for the first look and the last.
_MARGIN_S = 1.0


def has_lost_a_member(
    handler: Any,  # noqa: ANN401 (torch's DynamicRendezvousHandler)
    limit_s: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> bool:
    """Wait until it is known whether a node of the job is gone, or dead.

    A worker whose peer has died fails within a second. That its peer's launcher is dead as well is
    known only once that has been silent for long enough.

    Args:
        handler: of this node's rendezvous, after a meeting.
        limit_s: a node is dead after so long without a sign of life, s.
    """
    silence, me = Silence(limit_s), repr(handler._this_node)
    end_s = clock() + limit_s + _MARGIN_S
    while True:
        with handler._heartbeat_lock:
            handler._state_holder.sync()
            state = handler._state_holder.state
            membership: Membership = decode(getattr(state, ATTRIBUTE, ""))
            beats = {repr(node): at for node, at in state.last_heartbeats.items()}
        # One that is on its way out or in has none: it lives.
        others = (membership.expected & beats.keys()) - {me}
        if membership.gone or silence.silent(others, beats, clock()):
            return True
        if clock() >= end_s:
            return False
        pause(_LOOK_S)
