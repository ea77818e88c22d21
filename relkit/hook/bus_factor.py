"""What the links carry of a collective's payload, as nccl-tests count it (pure)."""

from __future__ import annotations

_BY_RANKS = {
    "allreduce": 2.0, "allgather": 1.0, "allgatherv": 1.0, "reduce_scatter": 1.0, "alltoall": 1.0,
    "alltoallv": 1.0,
}  # fmt: skip
_WHOLE = ("broadcast", "reduce")


def bus_factor(operation: str, ranks: int) -> float | None:
    """Bytes over the busiest link for each byte of payload; None where that is not defined."""
    if ranks < 2:
        return None
    if operation in _WHOLE:
        return 1.0
    factor = _BY_RANKS.get(operation)
    return None if factor is None else factor * (ranks - 1) / ranks
