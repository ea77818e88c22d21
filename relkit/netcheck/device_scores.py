"""Asks every node for the scores of its devices, several times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from relkit.netcheck.record import positive
from relkit.netcheck.talk import Talk

_MOST_DEVICES = 64
_NAME_LIMIT = 256
_MOST_ROUNDS = 1000


@dataclass(frozen=True, slots=True)
class DeviceScore:
    """What one device of one node did, round by round.

    Args:
        node: as the user gave it; device: "cpu", "cuda:0", "npu:3".
        compute_gflops: of a matrix product, GFLOP/s; memory_gbps: of a copy in the device's
            memory, GB/s. One figure a round in which there was one.
    """

    node: str
    device: str
    compute_gflops: tuple[float, ...] = ()
    memory_gbps: tuple[float, ...] = ()

    @property
    def kind(self) -> str:
        """Devices of one kind are compared: "cpu", "cuda", "npu"."""
        return self.device.partition(":")[0]


def read_score(plain: object) -> DeviceScore:
    """A score out of a saved check; what does not fit is left empty."""
    said = plain if isinstance(plain, Mapping) else {}
    compute, memory = (
        tuple(value for value in map(positive, _some(said.get(name))) if value > 0.0)
        for name in ("compute_gflops", "memory_gbps")
    )
    node, device = (str(said.get(name, ""))[:_NAME_LIMIT] for name in ("node", "device"))
    return DeviceScore(node, device, compute, memory)


def _some(value: object) -> list[object]:
    return value[:_MOST_ROUNDS] if isinstance(value, list) else []


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
            for device, scores in list(devices.items())[:_MOST_DEVICES]:
                if isinstance(scores, Mapping):
                    self._note(node, str(device)[:_NAME_LIMIT], scores)
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
