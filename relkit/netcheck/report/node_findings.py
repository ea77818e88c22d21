"""Findings about the nodes themselves: interface, settings, clock, computing speed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from relkit.findings import Evidence, Finding, Status
from relkit.hosts import fold
from relkit.netcheck.check_result import CheckResult
from relkit.netcheck.model import NodeFacts

# Interfaces that carry no traffic between machines, or only over something slow.
_SECONDARY_INTERFACE = re.compile(r"(docker|virbr|cni|flannel|cali|tun|tap|wlan|wl|usb)\w*")
_SKEW_S = 1.0
_COMPUTE_WARN, _COMPUTE_FAIL = 0.85, 0.5
_MAX_NAMED = 8


@dataclass(frozen=True, slots=True)
class _Setting:
    """A setting that should be the same on all nodes.

    Args:
        id: of the finding; name, unit: for people.
        of: its value on a node; advice: what to do where it differs.
    """

    id: str
    name: str
    unit: str
    of: Callable[[NodeFacts], str | int]
    advice: str


_SETTINGS = (
    _Setting("RK-NET-008", "interface", "", lambda node: node.interface,
             "Training would use that interface too. Check that it is the fast network."),
    _Setting("RK-NET-009", "MTU", "bytes", lambda node: node.mtu,
             "Set one MTU on all hosts and switch ports; a mismatch stalls large messages."),
    _Setting("RK-NET-010", "link speed", "Mbit/s", lambda node: node.speed_mbps,
             "The port has negotiated another speed: look at cable, transceiver, switch port."),
    _Setting("RK-NET-010", "duplex", "", lambda node: node.duplex,
             "Set both ends of the cable to automatic negotiation."),
)  # fmt: skip


def node_findings(result: CheckResult) -> list[Finding]:
    """Findings that need no edges."""
    facts = [item for item in result.facts if item.answered]
    return [
        *_secondary_interface(facts, result),
        *(finding for setting in _SETTINGS for finding in _differing(setting, facts)),
        *_one_host(result),
        *_duplicate_hosts(result),
        *_unauthenticated(facts),
        *_clocks(facts),
        *_compute(facts),
        *(Finding("RK-NET-017", Status.WARN, note) for note in result.notes),
    ]


def _secondary_interface(facts: Sequence[NodeFacts], result: CheckResult) -> list[Finding]:
    odd = [item for item in facts if _SECONDARY_INTERFACE.fullmatch(item.interface)]
    if not result.duplicate_hosts and len({item.hostname for item in facts}) > 1:
        odd += [item for item in facts if item.interface == "lo"]
    if not odd:
        return []
    return [
        Finding(
            id="RK-NET-008",
            status=Status.WARN,
            title=f"the route from {fold(i.name for i in odd)} to its peers goes through "
            f"{', '.join(sorted({i.interface for i in odd}))}",
            nodes=fold(i.name for i in odd),
            evidence=tuple(
                Evidence(i.name, i.interface, how="route to the peer") for i in odd[:_MAX_NAMED]
            ),
            advice="Training would use that network too: give the nodes' addresses in the fast "
            "network, and set NCCL_SOCKET_IFNAME or GLOO_SOCKET_IFNAME.",
        )
    ]


def _differing(setting: _Setting, facts: Sequence[NodeFacts]) -> list[Finding]:
    """A warning where most nodes have one value and some another."""
    known = [item for item in facts if setting.of(item)]
    ranked = Counter(setting.of(item) for item in known).most_common()
    if len(ranked) < 2:
        return []
    usual, count = ranked[0]
    odd = [item for item in known if setting.of(item) != usual]
    values = ", ".join(str(value) for value, _ in ranked[1:4])
    unit = f" {setting.unit}" if setting.unit else ""
    is_split = ranked[1][1] == count
    return [
        Finding(
            id=setting.id,
            status=Status.WARN,
            title=f"{setting.name} differs: {fold(i.name for i in odd)} with {values}{unit}, "
            f"{count} {'nodes' if count > 1 else 'node'} with {usual}{unit}"
            + ("; neither value is in the majority" if is_split else ""),
            nodes=fold(i.name for i in odd),
            evidence=tuple(
                Evidence(i.name, setting.of(i), setting.unit, usual, f"interface {i.interface}")
                for i in odd[:_MAX_NAMED]
            ),
            advice=setting.advice,
        )
    ]


def _one_host(result: CheckResult) -> list[Finding]:
    if not result.one_host:
        return []
    return [
        Finding(
            id="RK-NET-019",
            status=Status.WARN,
            title="all agents ran on one machine: the results show its processor and loopback, "
            "not a network",
            nodes=fold(result.nodes),
            reasons=(
                "nodes are not compared with each other, because a slow one would only mean that "
                "the machine is busy; bounds such as --min-bandwidth-gbps do apply",
            ),
            advice="Check real hosts with --via ssh, slurm, kubectl or command.",
        )
    ]


def _duplicate_hosts(result: CheckResult) -> list[Finding]:
    return [
        Finding(
            id="RK-NET-016",
            status=Status.WARN,
            title=f"{' and '.join(names[:6])} are the same machine under several names",
            nodes=fold(names),
            reasons=("traffic between them never left the machine",),
            advice="List every machine once.",
        )
        for names in result.duplicate_hosts
    ]


def _unauthenticated(facts: Sequence[NodeFacts]) -> list[Finding]:
    hit = [item for item in facts if item.unauthenticated_connections > 0]
    if not hit:
        return []
    total = sum(item.unauthenticated_connections for item in hit)
    return [
        Finding(
            id="RK-NET-011",
            status=Status.WARN,
            title=f"{total} unauthenticated connection{'s' if total > 1 else ''} to probe "
            "listeners: the peer did not know the run's secret, and was disconnected",
            nodes=fold(i.name for i in hit),
            evidence=tuple(
                Evidence(i.name, i.unauthenticated_connections, "connections", 0, "probe listener")
                for i in hit[:_MAX_NAMED]
            ),
            advice="It may be a port scanner, which also disturbs the measurements.",
        )
    ]


def _clocks(facts: Sequence[NodeFacts]) -> list[Finding]:
    off = [item for item in facts if abs(item.clock_skew_s) > _SKEW_S]
    if not off:
        return []
    worst = max(off, key=lambda item: abs(item.clock_skew_s))
    return [
        Finding(
            id="RK-NET-012",
            status=Status.WARN,
            title=f"the clock of {fold(i.name for i in off)} is off, by up to "
            f"{abs(worst.clock_skew_s):.1f} s",
            nodes=fold(i.name for i in off),
            evidence=tuple(
                Evidence(i.name, round(i.clock_skew_s, 1), "s", _SKEW_S, "the agent's first line")
                for i in off[:_MAX_NAMED]
            ),
            advice="Look at chrony or ntpd there: logs of nodes cannot be compared otherwise.",
        )
    ]


def _compute(facts: Sequence[NodeFacts]) -> list[Finding]:
    return [
        *_low_score("arithmetic", "GFLOP/s", {item.name: item.compute_gflops for item in facts}),
        *_low_score("memory bandwidth", "GB/s", {item.name: item.memory_gbps for item in facts}),
    ]


def _low_score(what: str, unit: str, scores: Mapping[str, float]) -> list[Finding]:
    scored = {name: score for name, score in scores.items() if score > 0}
    if len(scored) < 3:
        return []
    usual = median(scored.values())
    low = {name: score for name, score in scored.items() if score < _COMPUTE_WARN * usual}
    if not low:
        return []
    worst = min(low, key=lambda name: low[name])
    return [
        Finding(
            id="RK-NET-014",
            status=Status.FAIL if low[worst] < _COMPUTE_FAIL * usual else Status.WARN,
            title=f"{what} of {fold(low)} is low: {worst} reaches "
            f"{100 * low[worst] / usual:.0f} % of the fleet's median",
            nodes=fold(low),
            evidence=tuple(
                Evidence(name, round(score, 2), unit, round(_COMPUTE_WARN * usual, 2),
                         "compute probe")
                for name, score in list(low.items())[:_MAX_NAMED]
            ),
            advice="Look at clock speed, temperature and other load there; this says nothing "
            "about its network.",
        )
    ]  # fmt: skip
