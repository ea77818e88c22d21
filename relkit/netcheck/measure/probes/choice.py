"""Which probe measures what a job would use: by the devices of each host, the same for all."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path

from relkit.netcheck.measure.probes.compute_child import driver_kinds
from relkit.netcheck.measure.probes.names import AUTO_PROBES
from relkit.netcheck.measure.probes.registry import open_probe
from relkit.netcheck.model import NodeFacts, Port

_KINDS = {"nccl": "cuda", "hccl": "npu"}
_GPU_LIBRARIES = ("libtorch_cuda.so", "libtorch_hip.so")
_MAX_REASON = 200


def unable(ports: Sequence[Port]) -> dict[str, str]:
    """Why each probe of AUTO_PROBES cannot run on this host; "" where it can.

    Args:
        ports: of this host that are up.
    """
    return {name: _why_not(name, ports)[:_MAX_REASON] for name in AUTO_PROBES}


def choose(facts: Sequence[NodeFacts], sizes: int = 1) -> tuple[str, str]:
    """The first probe of AUTO_PROBES that all of these nodes can run, and a remark, or "".

    Args:
        facts: of the nodes that answered.
        sizes: how many message sizes are asked for; ib measures one.

    Returns:
        tcp where there is none. The remark says which probe only some nodes can run, and why not
        the others.
    """
    remark = ""
    for name in AUTO_PROBES:
        reasons = {item.name: _reason(item, name) for item in facts}
        unfit = {node: why for node, why in reasons.items() if why}
        if facts and not unfit and not (name == "ib" and sizes > 1):
            return name, ""
        if unfit and len(unfit) < len(facts) and not remark:
            node, why = next(iter(unfit.items()))
            remark = (
                f"{len(facts) - len(unfit)} of {len(facts)} nodes can measure with {name}, which "
                f"needs all: {node} cannot ({why})"
            )
    return "tcp", remark and f"{remark}; measured with tcp instead"


def _reason(facts: NodeFacts, name: str) -> str:
    return read_unable(facts.unable).get(name, "not known")


def write_unable(reasons: Mapping[str, str]) -> str:
    """The reasons as one text."""
    return "; ".join(f"{name}: {why.replace(';', ',')}" for name, why in reasons.items())


def read_unable(text: str) -> dict[str, str]:
    """The reasons of write_unable."""
    parts = (part.partition(": ") for part in text.split("; "))
    return {name.rstrip(": "): why for name, _, why in parts if name}


def _why_not(name: str, ports: Sequence[Port]) -> str:
    if name == "ib":
        if not any(port.kind in ("infiniband", "roce") for port in ports):
            return "no InfiniBand or RoCE port is up"
        return open_probe(name).missing()
    if _KINDS[name] not in driver_kinds():
        return "no driver of a device"
    if why := open_probe(name).missing():
        return why
    return "" if name != "nccl" or _torch_has_devices() else "torch is built without devices"


def _torch_has_devices() -> bool:
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return False
    folder = Path(spec.origin).parent / "lib"
    return any((folder / library).exists() for library in _GPU_LIBRARIES)
