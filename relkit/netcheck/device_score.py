"""Results of one device of one node in the compute probe, round by round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from relkit.netcheck.record import positive

NAME_LIMIT = 256
_MAX_ROUNDS = 1000


@dataclass(frozen=True, slots=True)
class DeviceScore:
    """Results of one device of one node, round by round.

    Args:
        node: as the user gave it; device: "cpu", "cuda:0", "npu:3".
        compute_gflops: of a matrix product, GFLOP/s; memory_gbps: of a copy in the device's
            memory, GB/s. One value for each round in which the device was measured.
        model: of the device; "" where it is not known.
    """

    node: str
    device: str
    compute_gflops: tuple[float, ...] = ()
    memory_gbps: tuple[float, ...] = ()
    model: str = ""

    @property
    def kind(self) -> str:
        """Devices of one kind and model are compared: "cpu", "cuda", "npu"."""
        return self.device.partition(":")[0]


def read_score(plain: object) -> DeviceScore:
    """A score from a saved check; fields of the wrong type are left empty."""
    fields = plain if isinstance(plain, Mapping) else {}
    compute, memory = (
        tuple(value for value in map(positive, _some(fields.get(name))) if value > 0.0)
        for name in ("compute_gflops", "memory_gbps")
    )
    node, device, model = (
        str(fields.get(name, ""))[:NAME_LIMIT] for name in ("node", "device", "model")
    )
    return DeviceScore(node, device, compute, memory, model)


def _some(value: object) -> list[object]:
    return value[:_MAX_ROUNDS] if isinstance(value, list) else []
