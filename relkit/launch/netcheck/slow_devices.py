"""Which nodes have a device that computes slowly, by the rates of a network check (pure)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from relkit.findings import Evidence, Finding, Report, Status
from relkit.hosts import fold
from relkit.netcheck.device_score import DeviceScore
from relkit.straggler.preflight.devices import LowDevice, low_devices

# So often a device is timed.
ROUNDS = 5
# Share of the others' rate that may be missing. Accelerators of one model differ by up to a tenth,
# and CPU time depends a little on whoever shares caches and memory.
_ACCELERATOR_LACK, _CPU_LACK = 0.2, 1 / 3
_ADVICE = (
    "Look at its clocks (`nvidia-smi -q -d CLOCK,PERFORMANCE` or `turbostat`), temperature and "
    "power limit."
)


@dataclass(frozen=True, slots=True)
class DeviceVerdict:
    """What follows from the rates of all devices.

    Args:
        slow: node -> its slowest device, of nodes that have one that is slow.
        in_doubt: devices that differ where it cannot be told which of them are slow.
    """

    slow: Mapping[str, LowDevice] = field(default_factory=dict)
    in_doubt: tuple[LowDevice, ...] = ()

    @property
    def reasons(self) -> dict[str, str]:
        """Node -> why it is slow, for people."""
        return {node: _why(device) for node, device in self.slow.items()}

    @property
    def warnings(self) -> tuple[str, ...]:
        """What could not be told, one sentence each."""
        return tuple(_doubt(device) for device in self.in_doubt)


def judge_devices(scores: Sequence[DeviceScore]) -> DeviceVerdict:
    """Hold each device against the others of its kind and model.

    Fewer than half of them can be slow: else it may be the others that are fast.

    Args:
        scores: of devices in their own time; figures of memory are not looked at.
    """
    alike: dict[tuple[str, str], list[DeviceScore]] = defaultdict(list)
    for score in scores:
        alike[score.kind, score.model].append(replace(score, memory_gbps=()))
    slow, in_doubt = dict[str, LowDevice](), list[LowDevice]()
    for (kind, _), group in alike.items():
        lack = _CPU_LACK if kind == "cpu" else _ACCELERATOR_LACK
        # Slowest first.
        low = [device for device in low_devices(group, lack) if device.is_certain]
        if 2 * len(low) >= len(group):
            in_doubt += low
            continue
        for device in low:
            if device.node not in slow or device.slowdown > slow[device.node].slowdown:
                slow[device.node] = device
    return DeviceVerdict(slow, tuple(in_doubt))


def with_devices(report: Report, scores: Sequence[DeviceScore], verdict: DeviceVerdict) -> Report:
    """The report of a network check with what is known of the devices; slow ones come first."""
    if not scores:
        return report
    slow = [_finding("RK-NET-022", Status.FAIL, device) for device in verdict.slow.values()]
    doubt = [_finding("RK-NET-023", Status.UNKNOWN, device) for device in verdict.in_doubt]
    devices = [
        {
            "node": score.node, "device": score.device, "model": score.model,
            "compute_gflops": list(score.compute_gflops),
        }
        for score in scores
    ]  # fmt: skip
    return replace(
        report,
        findings=(*slow, *doubt, *report.findings),
        facts={**report.facts, "devices": devices},
    )


def without_rates(errors: Mapping[str, str]) -> list[str]:
    """A sentence for each reason why devices were not timed."""
    nodes: dict[str, list[str]] = defaultdict(list)
    for node, why in errors.items():
        nodes[why].append(node)
    return [f"devices of {fold(names)} were not all timed: {why}" for why, names in nodes.items()]


def _why(device: LowDevice) -> str:
    return (
        f"slow device: {device.device} computes at {device.value / device.usual:.0%} of"
        f" {device.against} ({device.value:.4g} instead of {device.usual:.4g} GFLOP/s)"
    )


def _doubt(device: LowDevice) -> str:
    return (
        f"{device.device} of {device.node} computes at {device.value / device.usual:.0%} of the"
        f" fastest, and it cannot be told which of so few or so different devices are slow"
    )


def _finding(finding_id: str, status: Status, device: LowDevice) -> Finding:
    title = (
        f"{device.device} of {device.node} is slow: it computes at"
        f" {device.value / device.usual:.0%} of {device.against}"
    )
    return Finding(
        id=finding_id,
        status=status,
        title=title if status is Status.FAIL else _doubt(device),
        nodes=device.node,
        reasons=(
            f"median of {device.rounds} rounds in the device's own time, which scatter by"
            f" {device.sigma:.1%}",
        ),
        evidence=(
            Evidence(
                "arithmetic", round(device.value, 2), "GFLOP/s", round(device.usual, 2),
                "rates probe",
            ),
        ),
        advice=_ADVICE,
    )  # fmt: skip
