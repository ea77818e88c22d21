"""Asks every node for the scores of its devices, several times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

from relkit.fleet.agent_rpc import AgentRpc
from relkit.netcheck.device_score import NAME_LIMIT, DeviceScore
from relkit.netcheck.model import NodeFacts
from relkit.netcheck.record import positive

_MAX_DEVICES = 64


class DeviceScores:
    """Collects the scores of all devices over several rounds.

    Args:
        one_host: all agents share one machine, so they are asked one after the other: together
            they would compete for its cores.
    """

    def __init__(self, one_host: bool) -> None:
        self._one_host = one_host
        self._values: dict[tuple[str, str], tuple[list[float], list[float]]] = {}
        self.errors: dict[str, str] = {}

    def ask(self, rpc: AgentRpc, deadline_s: float) -> None:
        """One round over all nodes that still answer.

        Args:
            rpc: to the agents.
            deadline_s: for the replies.
        """
        live = sorted(rpc.live)
        for nodes in [[node] for node in live] if self._one_host else [live]:
            replies = rpc.ask(
                "compute",
                {"timeout_s": deadline_s},
                {node: {} for node in nodes},
                from_each=dict.fromkeys(nodes, 1),
                deadline_s=deadline_s,
                silent_is_lost=False,
            )
            for node in nodes:
                self._take(node, next(iter(replies.get(node, [])), {}))

    def _take(self, node: str, reply: Mapping[str, Any]) -> None:
        if reply.get("op") != "compute":
            why = str(reply.get("detail", "")) or "no scores within the deadline"
            self.errors.setdefault(node, why[:200])
            return
        self._add(node, "cpu", reply)
        devices = reply.get("devices")
        if isinstance(devices, Mapping):
            for device, scores in list(devices.items())[:_MAX_DEVICES]:
                if isinstance(scores, Mapping):
                    self._add(node, str(device)[:NAME_LIMIT], scores)
        if error := reply.get("device_error"):
            self.errors.setdefault(node, str(error)[:200])

    def _add(self, node: str, device: str, scores: Mapping[str, Any]) -> None:
        compute, memory = self._values.setdefault((node, device), ([], []))
        for values, name in ((compute, "compute_gflops"), (memory, "memory_gbps")):
            if (value := positive(scores.get(name))) > 0.0:
                values.append(value)

    @property
    def all(self) -> tuple[DeviceScore, ...]:
        """The scores of all devices, sorted by node and name."""
        return tuple(
            DeviceScore(node, device, tuple(compute), tuple(memory))
            for (node, device), (compute, memory) in sorted(self._values.items())
        )


def with_cpu_scores(facts: list[NodeFacts], scores: Sequence[DeviceScore]) -> list[NodeFacts]:
    """The facts with each node's own CPU score, the median of its rounds."""
    cpu = {score.node: score for score in scores if score.device == "cpu"}
    return [
        replace(
            item,
            compute_gflops=median(cpu[item.name].compute_gflops or (0.0,)),
            memory_gbps=median(cpu[item.name].memory_gbps or (0.0,)),
        )
        if item.name in cpu
        else item
        for item in facts
    ]
