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
# From this share of the step asleep on, the main thread is taken to wait for a device.
_DEVICE_SLEEP = 0.3


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
    Of its waiting only what goes beyond its peers' waiting per second of running counts. Waiting
    that its cgroup made is counted once, as throttling.

    Args:
        mine_s, peers_s: mean seconds a step, one for each of PARTS, of the rank and of its peers;
            NaN = not known.
    """
    sleep_known = bool(np.isfinite(mine_s[_ASLEEP]) and np.isfinite(peers_s[_ASLEEP]))
    mine_s, peers_s = _clean(mine_s), _clean(peers_s)
    excess = float(mine_s[:3].sum() - peers_s[:3].sum())
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
    share, seconds = min(1.0, float(grown[part]) / excess), float(grown[part])
    if part == _COMPUTE:
        return Attribution(Cause.COMPUTE, share, (_told("compute", seconds, excess),))
    if part == _INPUT:
        return Attribution(Cause.INPUT, share, (_told("waiting for input", seconds, excess),))
    if sleep_known:
        return _of_the_gap(mine_s, peers_s, excess)
    if peers_s[_COMPUTE] >= _COMPUTE_SEEN * float(peers_s[:3].sum()):
        reason = _told("time outside of kernels, input and collectives", seconds, excess)
        return Attribution(Cause.HOST, 0.7 * share, (reason,))
    reason = _told("time between collectives, of which no kernel was recorded,", seconds, excess)
    return Attribution(Cause.COMPUTE, 0.7 * share, (reason,))


def _of_the_gap(mine_s: Floats, peers_s: Floats, excess: float) -> Attribution:
    """Did the main thread sleep longer, or run longer, in time that no kernel accounts for?"""
    usual = float(peers_s[:3].sum())
    slept = float(mine_s[_ASLEEP] - peers_s[_ASLEEP])
    # Ranks that sleep much of a step wait for a device in it; those that do not compute themselves.
    device = float(peers_s[_ASLEEP]) >= _DEVICE_SLEEP * usual
    if slept >= _EXPLAINS * excess:
        share = min(1.0, slept / excess)
        if not device:
            return Attribution(
                Cause.INPUT, 0.8 * share,
                (_told("sleep of its main thread, as in waiting for data,", slept, excess),),
            )  # fmt: skip
        reason = _told("sleep of its main thread, as in waiting for a device,", slept, excess)
        return Attribution(Cause.COMPUTE, 0.7 * share, (reason,))
    ran = float(_running(mine_s) - _running(peers_s))
    share = float(np.clip(ran / excess, 0.0, 1.0))
    reason = _told("running of its main thread outside of kernels", ran, excess)
    if device and peers_s[_COMPUTE] >= _COMPUTE_SEEN * usual:
        return Attribution(Cause.HOST, 0.7 * share, (reason,))
    return Attribution(Cause.COMPUTE, 0.9 * share, (reason,))


def _clean(parts_s: Floats) -> Floats:
    """Without unknown values; starvation less what throttling is already counted for."""
    found = np.nan_to_num(parts_s)
    found[_STARVED] = max(0.0, float(found[_STARVED] - found[_THROTTLED]))
    return found


def _running(parts_s: Floats) -> float:
    host = parts_s[_STARVED] + parts_s[_THROTTLED] + parts_s[_ASLEEP]
    return max(0.0, float(parts_s[:3].sum() - host))


def _beyond(mine_s: Floats, peers_s: Floats, part: int) -> float:
    running = max(0.0, float(mine_s[:3].sum() - mine_s[_STARVED] - mine_s[_THROTTLED]))
    theirs = float(peers_s[:3].sum() - peers_s[_STARVED] - peers_s[_THROTTLED])
    expected = float(peers_s[part]) * (running / theirs if theirs > 0.0 else 1.0)
    return float(mine_s[part]) - max(expected, float(peers_s[part]))


def _told(name: str, seconds: float, excess: float) -> str:
    return f"{name} is {seconds * 1e3:.3g} ms a step longer: {seconds / excess:.0%} of its excess"
