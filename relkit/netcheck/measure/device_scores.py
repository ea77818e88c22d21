"""Asks every node for the scores of its devices, several times."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from relkit.netcheck.device_score import NAME_LIMIT, DeviceScore
from relkit.netcheck.measure.agent_rpc import Talk
from relkit.netcheck.record import positive

_MAX_DEVICES = 64


class DeviceScores:
    """Collects rounds of scores over one conversation.

    Args:
        one_host: all agents share one machine: they are asked in turn, or they would take each
            other's cores.
    """

    def __init__(self, one_host: bool) -> None:
        self._one_host = one_host
        self._figures: dict[tuple[str, str], tuple[list[float], list[float]]] = {}
        self.errors: dict[str, str] = {}

    def ask(self, talk: Talk, deadline_s: float) -> None:
        """One round over all nodes that are still there.

        Args:
            talk: with the fleet; deadline_s: for one node's answer, s.
        """
        live = sorted(talk.live)
        for nodes in [[node] for node in live] if self._one_host else [live]:
            replies = talk.ask(
                "compute",
                {"timeout_s": deadline_s},
                {node: {} for node in nodes},
                from_each=dict.fromkeys(nodes, 1),
                deadline_s=deadline_s,
                silent_is_lost=False,
            )
            for node in nodes:
                self._take(node, next(iter(replies.get(node, [])), {}))

    def _take(self, node: str, said: Mapping[str, Any]) -> None:
        if said.get("op") != "compute":
            why = str(said.get("detail", "")) or "gave no scores in time"
            self.errors.setdefault(node, why[:200])
            return
        self._note(node, "cpu", said)
        devices = said.get("devices")
        if isinstance(devices, Mapping):
            for device, scores in list(devices.items())[:_MAX_DEVICES]:
                if isinstance(scores, Mapping):
                    self._note(node, str(device)[:NAME_LIMIT], scores)
        if error := said.get("device_error"):
            self.errors.setdefault(node, str(error)[:200])

    def _note(self, node: str, device: str, scores: Mapping[str, Any]) -> None:
        compute, memory = self._figures.setdefault((node, device), ([], []))
        for figures, name in ((compute, "compute_gflops"), (memory, "memory_gbps")):
            if (value := positive(scores.get(name))) > 0.0:
                figures.append(value)

    @property
    def found(self) -> tuple[DeviceScore, ...]:
        """All devices seen, by node and name."""
        return tuple(
            DeviceScore(node, device, tuple(compute), tuple(memory))
            for (node, device), (compute, memory) in sorted(self._figures.items())
        )
