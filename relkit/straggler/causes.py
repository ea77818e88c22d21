"""Why a rank is slow: which part of its step grew, and what grew inside that part."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from relkit.straggler.model import PARTS, Cause, Floats

_COMPUTE, _INPUT, _GAP, _GC, _STARVED, _THROTTLED, _ASLEEP = range(len(PARTS))
# The host is to blame when what it took away explains this share of the excess.
_EXPLAINS = 0.5
# Below this share of the step in hooked kernels, nothing is known of where the device computes.
_COMPUTE_SEEN = 0.2


@dataclass(frozen=True, slots=True)
class Attribution:
    """A cause and how sure it is.

    Args:
        cause: of the excess; share: of it that the cause explains, 0..1.
        reasons: sentences with the figures, strongest first.
    """

    cause: Cause
    share: float
    reasons: tuple[str, ...]


def attribute(mine_s: Floats, peers_s: Floats) -> Attribution:
    """What explains that a rank takes longer than its peers.

    A slow rank that shares its core also waits for the core longer, just because it runs longer.
    Of its waiting only what goes beyond its peers' waiting per second of running counts.

    Args:
        mine_s, peers_s: mean seconds a step, one for each of PARTS, of the rank and of its peers.
    """
    mine_s, peers_s = np.nan_to_num(mine_s), np.nan_to_num(peers_s)
    own, usual = float(mine_s[:3].sum()), float(peers_s[:3].sum())
    excess = own - usual
    if excess <= 0.0:
        return Attribution(Cause.NOISE, 0.0, ("it takes no longer than its peers",))
    hosts = {
        "garbage collection": float(mine_s[_GC] - peers_s[_GC]),
        "throttling by its cgroup": float(mine_s[_THROTTLED] - peers_s[_THROTTLED]),
        "waiting for a core": _beyond(mine_s, peers_s, _STARVED),
    }
    stolen = sum(max(0.0, seconds) for seconds in hosts.values())
    if stolen >= _EXPLAINS * excess:
        told = sorted(hosts.items(), key=lambda item: -item[1])
        reasons = [_told(name, s, excess) for name, s in told if s >= 0.1 * excess]
        return Attribution(Cause.HOST, min(1.0, stolen / excess), tuple(reasons))
    grown = mine_s[:3] - peers_s[:3]
    part = int(np.argmax(grown))
    share = min(1.0, float(grown[part]) / excess)
    seconds = float(grown[part])
    if part == _COMPUTE:
        return Attribution(Cause.COMPUTE, share, (_told("compute", seconds, excess),))
    if part == _INPUT:
        return Attribution(Cause.INPUT, share, (_told("waiting for input", seconds, excess),))
    if peers_s[_COMPUTE] >= _COMPUTE_SEEN * usual:
        reason = _told("time outside of kernels, input and collectives", seconds, excess)
        return Attribution(Cause.HOST, 0.7 * share, (reason,))
    reason = _told("time between collectives, of which no kernel was recorded,", seconds, excess)
    return Attribution(Cause.COMPUTE, 0.7 * share, (reason,))


def _beyond(mine_s: Floats, peers_s: Floats, part: int) -> float:
    running = max(0.0, float(mine_s[:3].sum() - mine_s[_STARVED] - mine_s[_THROTTLED]))
    theirs = float(peers_s[:3].sum() - peers_s[_STARVED] - peers_s[_THROTTLED])
    expected = float(peers_s[part]) * (running / theirs if theirs > 0.0 else 1.0)
    return float(mine_s[part]) - max(expected, float(peers_s[part]))


def _told(name: str, seconds: float, excess: float) -> str:
    return f"{name} is {seconds * 1e3:.3g} ms a step longer: {seconds / excess:.0%} of its excess"
