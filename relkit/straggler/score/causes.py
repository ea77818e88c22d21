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
    Cause,
    Floats,
)

# The host is to blame when what it took away explains this share of the slowdown.
_EXPLAINS = 0.5
# Below this share of the step in hooked kernels, nothing is known of where the device computes.
_COMPUTE_SEEN = 0.2
# From this share of the step off the CPU on, the main thread is taken to wait for a device.
_DEVICE_OFF_CPU = 0.3
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

    A slow rank that shares its core also waits for the core longer, just because it runs longer.
    Of its waiting only what goes beyond its peers' waiting per second of running counts. Waiting
    that its cgroup made is counted once, as throttling.

    Args:
        mine_s, peers_s: mean seconds a step, one for each of PARTS, of the rank and of its peers;
            NaN = not known.
    """
    off_cpu_known = bool(np.isfinite(mine_s[OFF_CPU]) and np.isfinite(peers_s[OFF_CPU]))
    mine_s, peers_s = _clean(mine_s), _clean(peers_s)
    slowdown = float(mine_s[:LOCAL_PARTS].sum() - peers_s[:LOCAL_PARTS].sum())
    if slowdown <= 0.0:
        return Attribution(Cause.NOISE, 0.0, ("it takes no longer than its peers",))
    hosts = {
        "garbage collection": float(mine_s[GC] - peers_s[GC]),
        "throttling by its cgroup": float(mine_s[THROTTLED] - peers_s[THROTTLED]),
        "run-queue wait": _beyond(mine_s, peers_s, RUN_QUEUE_WAIT),
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
            return Attribution(Cause.INPUT, 0.8 * share, (reason,))
        reason = _reason(f"{_OFF_CPU_TIME}, as in waiting for a device,", off_cpu_s, slowdown)
        return Attribution(Cause.COMPUTE, 0.7 * share, (reason,))
    ran = float(_running(mine_s) - _running(peers_s))
    share = float(np.clip(ran / slowdown, 0.0, 1.0))
    reason = _reason("running of its main thread outside of kernels", ran, slowdown)
    if device and peers_s[COMPUTE] >= _COMPUTE_SEEN * usual:
        return Attribution(Cause.HOST, 0.7 * share, (reason,))
    return Attribution(Cause.COMPUTE, 0.9 * share, (reason,))


def _clean(parts_s: Floats) -> Floats:
    """Without unknown values; run-queue wait less what is already counted as throttling."""
    clean_s = np.nan_to_num(parts_s)
    clean_s[RUN_QUEUE_WAIT] = max(0.0, float(clean_s[RUN_QUEUE_WAIT] - clean_s[THROTTLED]))
    return clean_s


def _running(parts_s: Floats) -> float:
    host = parts_s[RUN_QUEUE_WAIT] + parts_s[THROTTLED] + parts_s[OFF_CPU]
    return max(0.0, float(parts_s[:LOCAL_PARTS].sum() - host))


def _beyond(mine_s: Floats, peers_s: Floats, part: int) -> float:
    running = max(
        0.0, float(mine_s[:LOCAL_PARTS].sum() - mine_s[RUN_QUEUE_WAIT] - mine_s[THROTTLED])
    )
    theirs = float(peers_s[:LOCAL_PARTS].sum() - peers_s[RUN_QUEUE_WAIT] - peers_s[THROTTLED])
    expected = float(peers_s[part]) * (running / theirs if theirs > 0.0 else 1.0)
    return float(mine_s[part]) - max(expected, float(peers_s[part]))


def _reason(name: str, seconds: float, slowdown: float) -> str:
    return (
        f"{name} is {seconds * 1e3:.3g} ms a step longer: {seconds / slowdown:.0%} of its slowdown"
    )
