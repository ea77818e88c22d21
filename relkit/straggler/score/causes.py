"""Why a rank is slow: which part of its step grew, and what grew inside that part."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from relkit.straggler.model import (
    COMPUTE,
    GC,
    INPUT,
    LOCAL_PARTS,
    OFF_CPU,
    RUN_QUEUE_WAIT,
    THROTTLED,
    UNATTRIBUTED,
    Cause,
    Floats,
)

# The host is to blame when what it took away explains this share of the slowdown.
_EXPLAINS = 0.5
# Below this share of the step in hooked kernels, nothing is known of where the device computes.
_COMPUTE_SEEN = 0.2
# From this share of the step off the CPU on, the main thread is taken to wait for a device.
_DEVICE_OFF_CPU = 0.3
_ROUNDING_S = 1e-9
# A thread may sleep for many reasons: data, a lock, a disk, an answer. It is a suspicion, no more.
_GUESSED = 0.3
_OFF_CPU_TIME = "off-CPU time of its main thread"


@dataclass(frozen=True, slots=True)
class Attribution:
    """A cause and how sure it is.

    Args:
        cause: of the slowdown; share: of it that the cause explains, 0..1.
        reasons: sentences with the figures, strongest first.
    """

    cause: Cause
    share: float
    reasons: tuple[str, ...]


def attribute(mine_s: Floats, peers_s: Floats) -> Attribution:
    """What explains that a rank takes longer than its peers.

    Waiting for a core is left out, as in the slowdown: others have the core. Waiting that its
    cgroup made is throttling.

    Args:
        mine_s, peers_s: mean seconds a step, one for each of PARTS, of the rank and of its peers;
            NaN = not known.
    """
    off_cpu_known = bool(np.isfinite(mine_s[OFF_CPU]) and np.isfinite(peers_s[OFF_CPU]))
    mine_s, peers_s = _without_wait(mine_s), _without_wait(peers_s)
    slowdown = float(mine_s[:LOCAL_PARTS].sum() - peers_s[:LOCAL_PARTS].sum())
    if slowdown <= _ROUNDING_S:
        return Attribution(Cause.NOISE, 0.0, ("it takes no longer than its peers",))
    hosts = {
        "garbage collection": float(mine_s[GC] - peers_s[GC]),
        "throttling by its cgroup": float(mine_s[THROTTLED] - peers_s[THROTTLED]),
    }
    stolen = sum(max(0.0, seconds) for seconds in hosts.values())
    if stolen >= _EXPLAINS * slowdown:
        largest = sorted(hosts.items(), key=lambda item: -item[1])
        reasons = [_reason(name, s, slowdown) for name, s in largest if s >= 0.1 * slowdown]
        return Attribution(Cause.HOST, min(1.0, stolen / slowdown), tuple(reasons))
    grown = mine_s[:LOCAL_PARTS] - peers_s[:LOCAL_PARTS]
    part = int(np.argmax(grown))
    share, seconds = min(1.0, float(grown[part]) / slowdown), float(grown[part])
    if part == COMPUTE:
        return Attribution(Cause.COMPUTE, share, (_reason("compute", seconds, slowdown),))
    if part == INPUT:
        return Attribution(Cause.INPUT, share, (_reason("waiting for input", seconds, slowdown),))
    if off_cpu_known:
        return _of_the_unattributed(mine_s, peers_s, slowdown)
    if peers_s[COMPUTE] >= _COMPUTE_SEEN * float(peers_s[:LOCAL_PARTS].sum()):
        reason = _reason("time outside of kernels, input and collectives", seconds, slowdown)
        return Attribution(Cause.HOST, 0.7 * share, (reason,))
    reason = _reason(
        "time between collectives, of which no kernel was recorded,", seconds, slowdown
    )
    return Attribution(Cause.COMPUTE, 0.7 * share, (reason,))


def _of_the_unattributed(mine_s: Floats, peers_s: Floats, slowdown: float) -> Attribution:
    """Was the main thread off the CPU longer, or did it run longer, in unattributed time?"""
    usual = float(peers_s[:LOCAL_PARTS].sum())
    off_cpu_s = float(mine_s[OFF_CPU] - peers_s[OFF_CPU])
    # Ranks that are off the CPU for much of a step wait for a device; others compute themselves.
    device = float(peers_s[OFF_CPU]) >= _DEVICE_OFF_CPU * usual
    if off_cpu_s >= _EXPLAINS * slowdown:
        share = min(1.0, off_cpu_s / slowdown)
        if not device:
            reason = _reason(f"{_OFF_CPU_TIME}, as in waiting for data,", off_cpu_s, slowdown)
            return Attribution(Cause.INPUT, _GUESSED * share, (reason,))
        reason = _reason(f"{_OFF_CPU_TIME}, as in waiting for a device,", off_cpu_s, slowdown)
        return Attribution(Cause.COMPUTE, 0.7 * share, (reason,))
    ran = float(_running(mine_s) - _running(peers_s))
    share = float(np.clip(ran / slowdown, 0.0, 1.0))
    reason = _reason("running of its main thread outside of kernels", ran, slowdown)
    if device and peers_s[COMPUTE] >= _COMPUTE_SEEN * usual:
        return Attribution(Cause.HOST, 0.7 * share, (reason,))
    return Attribution(Cause.COMPUTE, 0.9 * share, (reason,))


def _without_wait(parts_s: Floats) -> Floats:
    """Without unknown values, and without what the rank waited for a core."""
    own_s: Floats = np.nan_to_num(parts_s)
    left_s = max(0.0, float(own_s[RUN_QUEUE_WAIT] - own_s[THROTTLED]))
    # It may have been in any part, and is in what is not attributed, most likely.
    for part in (UNATTRIBUTED, INPUT, COMPUTE):
        taken_s = min(left_s, float(own_s[part]))
        own_s[part] -= taken_s
        left_s -= taken_s
    return own_s


def _running(parts_s: Floats) -> float:
    host = parts_s[THROTTLED] + parts_s[OFF_CPU]
    return max(0.0, float(parts_s[:LOCAL_PARTS].sum() - host))


def _reason(name: str, seconds: float, slowdown: float) -> str:
    share = min(1.0, seconds / slowdown)
    return f"{name} is {seconds * 1e3:.3g} ms a step longer: {share:.0%} of its slowdown"
