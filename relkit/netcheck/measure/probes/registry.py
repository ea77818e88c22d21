"""The probes by the names that users give them."""

from __future__ import annotations

from relkit.errors import UsageProblem
from relkit.netcheck.measure.probes.base import Probe
from relkit.netcheck.measure.probes.ib import IbProbe
from relkit.netcheck.measure.probes.names import PROBES, TORCH_PROBES
from relkit.netcheck.measure.probes.tcp import TcpProbe
from relkit.netcheck.measure.probes.torch_probe import TorchProbe


def open_probe(name: str) -> Probe:
    """The probe of this name.

    Raises:
        UsageProblem: there is none.
    """
    if name == "tcp":
        return TcpProbe()
    if name == "ib":
        return IbProbe()
    if name in TORCH_PROBES:
        return TorchProbe(name)
    raise UsageProblem(f"no probe {name!r}", next_step=f"Choose one of {', '.join(PROBES)}.")
