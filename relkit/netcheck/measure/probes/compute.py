"""How fast a node computes: scores of a matrix product and a copy in memory."""

from __future__ import annotations

from typing import Any

from relkit.netcheck.measure.probes.child import run_in_child

_CHILD = "relkit.netcheck.measure.probes.compute_child"


def measure_compute(time_s: float = 0.5, timeout_s: float = 60.0) -> dict[str, Any]:
    """Scores of the CPU and of each accelerator, measured in a child.

    Args:
        time_s: about how long each device is kept busy, 0.05 to 30.
        timeout_s: the child is killed after this time.

    Returns:
        compute_gflops (a float32 product on the CPU, GFLOP/s), memory_gbps (a copy in main
        memory, GB/s, reads and writes both counted), and devices: the same two for each
        accelerator by name, with a float16 product; device_error if torch failed on them.

    Raises:
        ChildFailed: no result.
    """
    order = {"time_s": min(max(time_s, 0.05), 30.0)}
    return run_in_child(_CHILD, order, timeout_s=timeout_s)
