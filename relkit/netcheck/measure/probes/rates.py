"""How fast each device computes in its own time, so that other work on the node does not count."""

from __future__ import annotations

from typing import Any

from relkit.netcheck.measure.probes.child import run_in_child

_CHILD = "relkit.netcheck.measure.probes.rate_child"
# More threads than one would also count the time in which they wait for each other.
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
_MAX_ROUNDS = 100


def measure_rates(rounds: int, timeout_s: float) -> dict[str, Any]:
    """Rates of each accelerator, or of the CPU where there is none, measured in a child.

    Args:
        rounds: how often each device is timed, 1 to 100.
        timeout_s: the child is killed after this time.

    Returns:
        rates: device -> GFLOP/s of each round, by CPU time or by the accelerator's events;
        models: device -> its model; device_error if torch failed on the accelerators.

    Raises:
        ChildFailed: no result.
    """
    order = {"rounds": min(max(rounds, 1), _MAX_ROUNDS)}
    return run_in_child(_CHILD, order, timeout_s=timeout_s, environment=_ONE_THREAD)
