"""The gloo, nccl and hccl probes: a process group of two, each rank in a child of its agent.

The counterparts of NCCL keep its name: torch built for ROCm (RCCL) or MACA (MCCL) calls them nccl.
"""

from __future__ import annotations

import importlib.util
import socket
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from relkit.net.handshake import CONTROL
from relkit.net.interface import NoRoute, route_to
from relkit.net.listener import Listener
from relkit.netcheck.measure.probes.base import Measured, Plan, ProbeFailed, guarded
from relkit.netcheck.measure.probes.child import ChildFailed, run_in_child
from relkit.netcheck.model import Edge, Failure, SizeStatistics

_CHILD = "relkit.netcheck.measure.probes.torch_child"
_CONNECT_S = 5.0
_PACKAGES = {"gloo": "torch", "nccl": "torch", "hccl": "torch_npu"}


class TorchProbe:
    """All-reduce and send/recv through torch.distributed.

    Args:
        backend: one of names.TORCH_PROBES.
    """

    def __init__(self, backend: str) -> None:
        self.name = backend

    def missing(self) -> str:
        """The package that is not installed; a missing device is reported by the child."""
        package = _PACKAGES[self.name]
        # Not imported: that takes seconds and hundreds of megabytes.
        return "" if importlib.util.find_spec(package) else f"{package} is not installed"

    def connect(self, plan: Plan) -> Measured:
        """Be rank 1, and report."""
        return guarded(plan, self.name, self._measure)

    def accept(self, plan: Plan, listener: Listener) -> None:
        """Be rank 0. Raises ProbeFailed."""
        self._need(plan)
        try:
            connection = listener.take(CONTROL, plan.timeout_s)
        except TimeoutError as error:
            raise ProbeFailed(Failure.NO_ANSWER, str(error)) from error
        self._run(plan, 0, connection)

    def _measure(self, plan: Plan) -> Measured:
        self._need(plan)
        connection = plan.open(CONTROL, _CONNECT_S)
        result = self._run(plan, 1, connection)
        row = result["all_reduce"][-1]
        out = Edge(
            plan.node, plan.peer, plan.round, self.name, row["size_bytes"], row["out_gbps"],
            result["both_ways_gbps"], result["latency_p50_us"], result["latency_p99_us"],
            fabric=str(result.get("fabric", "")),
        )  # fmt: skip
        back = replace(out, source=plan.peer, target=plan.node, bandwidth_gbps=row["in_gbps"])
        if len(plan.sizes) > 1:
            rows = result["all_reduce"]
            out = replace(out, by_size=_by_size(rows, "out_gbps"))
            back = replace(back, by_size=_by_size(rows, "in_gbps"))
        return Measured((out, back), {"all_reduce": result["all_reduce"]})

    def _need(self, plan: Plan) -> None:
        if why := self.missing():
            raise ProbeFailed(Failure.PROBE_ERROR, f"{why} on {plan.node}")

    def _run(self, plan: Plan, rank: int, connection: socket.socket) -> dict[str, Any]:
        order = {
            "fd": connection.fileno(), "rank": rank, "backend": self.name,
            "sizes": list(plan.sizes), "duration_s": plan.duration_s,
            "both_ways": plan.both_ways, "timeout_s": plan.timeout_s,
        }  # fmt: skip
        with connection:
            try:
                return run_in_child(
                    _CHILD, order, timeout_s=plan.timeout_s,
                    keep=(connection.fileno(),), environment=_interfaces(connection),
                )  # fmt: skip
            except ChildFailed as error:
                kind = Failure.DEADLINE if error.timed_out else Failure.PROBE_ERROR
                raise ProbeFailed(kind, f"{self.name} on {plan.node}: {error}") from error


def _by_size(rows: Sequence[Mapping[str, Any]], way: str) -> tuple[SizeStatistics, ...]:
    return tuple(SizeStatistics(row["size_bytes"], row[way]) for row in rows)


def _interfaces(connection: socket.socket) -> dict[str, str]:
    """Environment that keeps each library on the interface of the route to the peer."""
    try:
        name = route_to(connection.getpeername()[0]).interface
    except NoRoute:
        name = ""
    if not name:
        return {}
    return {
        "GLOO_SOCKET_IFNAME": name, "NCCL_SOCKET_IFNAME": f"={name}", "HCCL_SOCKET_IFNAME": name,
    }  # fmt: skip
