"""Findings about the fabric: which one was measured, whether a faster one is up, and its speed."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from relkit.findings import Evidence, Finding, Status
from relkit.hosts import fold
from relkit.netcheck.check_result import CheckResult
from relkit.netcheck.model import NodeFacts, Port
from relkit.netcheck.report.statistics import by_node, fleet_median, positive_median

_NAMES = {
    "ethernet": "Ethernet", "infiniband": "InfiniBand", "roce": "RoCE", "efa": "EFA",
    "ipoib": "IP over InfiniBand",
}  # fmt: skip
_RDMA = ("infiniband", "roce", "efa")
_TCP_PROBES = ("tcp", "gloo")
_SOCKET = "Socket"
# Faster by less than this is no reason to speak of it.
_CLEARLY_FASTER = 2.0
# What TCP leaves of a line: headers of IP and TCP with time stamps, and Ethernet's own.
_HEADERS_BYTES, _FRAME_BYTES = 52, 38
_LOW_SHARE = 0.5
_MAX_NAMED = 8


@dataclass(frozen=True, slots=True)
class _Slower:
    """What is used on a node, and what is up beside it.

    Args:
        interface: that TCP uses; used_mbps: of its line, 0 if unknown.
        faster: the fastest port beside it.
        chosen_by: the setting that chose the interface, or "".
    """

    interface: str
    used_mbps: int
    faster: Port
    chosen_by: str


def fabric_findings(result: CheckResult) -> list[Finding]:
    """A slower transport than there is, and a fleet that is far below its own line."""
    if result.one_host:
        return []
    return [*_slower_transports(result), *_far_below_the_line(result)]


def fabric_facts(result: CheckResult) -> dict[str, Any]:
    """For the JSON document: what carried the traffic, and which bandwidth was to be expected."""
    line = _line(result)
    peers = fleet_median(result.edges)
    expected = {
        "peers_gbps": None if peers is None else round(peers, 4),
        "line_gbps": None if line is None else round(line[0], 4),
        "line_from": "" if line is None else line[1],
        "share_of_line": None if line is None or peers is None else round(peers / line[0], 4),
    }
    return {"fabric": fabric_of(result), "expected": expected}


def fabric_of(result: CheckResult) -> str:
    """What carried the traffic of the check, in words: "tcp over eth0 (Ethernet, 25 Gbit/s)"."""
    seen = Counter(edge.fabric for edge in result.edges if edge.fabric)
    facts = [item for item in result.facts if item.answered]
    network = seen.most_common(1)[0][0] if seen else ""
    ports = [port for item in facts if (port := _port_of(item, result.probe, network))]
    through = f" by {network}" if network else ""
    if not ports:
        names = Counter(item.interface for item in facts if item.interface)
        over = f" over {names.most_common(1)[0][0]}" if names and not through else through
        return f"{result.probe}{over}"
    name, kind, speed_mbps = Counter(
        (port.name, port.kind, port.speed_mbps) for port in ports
    ).most_common(1)[0][0]
    return f"{result.probe}{through} over {name} ({_NAMES.get(kind, kind)}, {_speed(speed_mbps)})"


def _port_of(facts: NodeFacts, probe: str, network: str) -> Port | None:
    """The port that a probe's traffic went through, where that is known."""
    if probe in _TCP_PROBES or network == _SOCKET:
        return next((port for port in facts.ports if port.name == facts.interface), None)
    if probe == "ib" or network:
        rdma = [port for port in facts.ports if port.kind in _RDMA]
        return next((port for port in rdma if port.interface == facts.interface), None) or (
            rdma[0] if rdma else None
        )
    return None


def _slower_transports(result: CheckResult) -> list[Finding]:
    """TCP is used where something clearly faster is up, on two nodes at least."""
    networks = {edge.source: edge.fabric for edge in result.edges if edge.fabric}
    networks |= {edge.target: edge.fabric for edge in result.edges if edge.fabric}
    if result.probe not in _TCP_PROBES and _SOCKET not in networks.values():
        return []
    facts = [item for item in result.facts if item.answered]
    reachable = _shared(facts)
    statistics = by_node(result.nodes, result.edges)
    alike: dict[tuple[_Slower, str], list[NodeFacts]] = defaultdict(list)
    for item in facts:
        network = networks.get(item.name, "")
        if result.probe in _TCP_PROBES or network == _SOCKET:
            measured = statistics[item.name].out_gbps or 0.0
            if slower := _slower(item, measured, reachable):
                alike[slower, network].append(item)
    return [
        _slower_finding(slower, network, items, result.probe)
        for (slower, network), items in alike.items()
    ]


def _shared(facts: Sequence[NodeFacts]) -> set[str]:
    """Kinds of RDMA, and IP networks, in which two nodes at least have a port that is up."""
    seen: Counter[str] = Counter()
    for item in facts:
        seen.update({port.kind for port in item.ports if port.kind in _RDMA})
        seen.update({port.network for port in item.ports if port.network})
    return {name for name, count in seen.items() if count > 1}


def _slower(facts: NodeFacts, measured_gbps: float, reachable: set[str]) -> _Slower | None:
    by_name = {port.name: port for port in facts.ports}
    settings = _settings(facts)
    interface, chosen_by = facts.interface, ""
    chosen = _selected(settings.get("NCCL_SOCKET_IFNAME", ""), facts.ports)
    if chosen and chosen.name != interface:
        interface, chosen_by = chosen.name, f"NCCL_SOCKET_IFNAME={settings['NCCL_SOCKET_IFNAME']}"
        measured_gbps = 0.0
    used_mbps = by_name[interface].speed_mbps if interface in by_name else 0
    at_least = max(used_mbps, 1000.0 * measured_gbps)
    beside = [
        port
        for port in facts.ports
        if port.interface != interface
        and port.speed_mbps >= _CLEARLY_FASTER * at_least > 0
        and (port.kind if port.kind in _RDMA else port.network) in reachable
    ]
    if not beside:
        return None
    faster = max(beside, key=lambda port: (port.speed_mbps, port.kind in _RDMA))
    plain = Port(faster.name, faster.kind, faster.speed_mbps, interface=faster.interface)
    return _Slower(interface, used_mbps, plain, chosen_by)


def _selected(text: str, ports: Sequence[Port]) -> Port | None:
    """The one port that NCCL_SOCKET_IFNAME names; None where it leaves a choice, or names none."""
    if not text or text.startswith("^"):
        return None
    exact = text.startswith("=")
    names = [name for name in text.removeprefix("=").split(",") if name]
    fit = [
        port
        for port in ports
        if port.kind not in _RDMA
        and any(port.name == name if exact else port.name.startswith(name) for name in names)
    ]
    return fit[0] if len(fit) == 1 else None


def _settings(facts: NodeFacts) -> Mapping[str, str]:
    parts = (word.partition("=") for word in facts.settings.split())
    return {key: value for key, _, value in parts}


def _slower_finding(
    slower: _Slower, network: str, items: Sequence[NodeFacts], probe: str
) -> Finding:
    faster = slower.faster
    name = _NAMES.get(faster.kind, faster.kind)
    used = f"{slower.interface} ({_speed(slower.used_mbps)})" if slower.used_mbps else (
        slower.interface or "an unknown interface"
    )  # fmt: skip
    if network:
        what = f"NCCL sends through sockets over {used}"
    elif slower.chosen_by:
        what = f"{slower.chosen_by} leads over {used}"
    else:
        what = f"the {probe} probe went over {used}"
    settings = sorted({item.settings for item in items if item.settings})
    reasons = [f"set there: {text}" for text in settings[:_MAX_NAMED]]
    if faster.kind in _RDMA and not network:
        reasons += sorted({f"not measured: {item.unable}" for item in items if item.unable})[:2]
    return Finding(
        id="RK-NET-025",
        status=Status.WARN,
        title=f"{what} on {fold(item.name for item in items)}, and {name} of "
        f"{_speed(faster.speed_mbps)} is up there ({faster.name})",
        nodes=fold(item.name for item in items),
        reasons=tuple(reasons),
        evidence=(
            Evidence(faster.name, faster.speed_mbps / 1000, "Gbit/s", how="sysfs, port is up"),
            *(
                [Evidence(slower.interface, slower.used_mbps / 1000, "Gbit/s", how="sysfs")]
                if slower.used_mbps
                else []
            ),
        ),
        advice=_slower_advice(faster, network),
    )


def _slower_advice(faster: Port, network: str) -> str:
    if network:
        return (
            "Look at NCCL_IB_DISABLE, NCCL_NET and NCCL_SOCKET_IFNAME, at libibverbs and its "
            "drivers in the container, and at what NCCL_DEBUG=INFO says of NET."
        )
    if faster.kind in _RDMA:
        return (
            "If training is to use it, measure it: --probe nccl, or --probe ib with perftest on "
            "the nodes. If NCCL_IB_DISABLE or NCCL_NET is set, ask why."
        )
    return (
        f"If training is to use it, set NCCL_SOCKET_IFNAME={faster.name} and "
        f"GLOO_SOCKET_IFNAME={faster.name}, and give the nodes' addresses in that network."
    )


def _line(result: CheckResult) -> tuple[float, str] | None:
    """What the nodes' lines carry at best, Gbit/s, and where that is from."""
    seen = Counter(edge.fabric for edge in result.edges if edge.fabric)
    network = seen.most_common(1)[0][0] if seen else ""
    ports = [
        port
        for item in result.facts
        if item.answered and (port := _port_of(item, result.probe, network))
    ]
    middle = positive_median(_goodput_gbps(port) for port in ports)
    if middle is None:
        return None
    usual = min(ports, key=lambda port: abs(_goodput_gbps(port) - middle))
    mtu = f", MTU {usual.mtu}" if usual.mtu else ""
    return middle, f"speed of {usual.name} in sysfs: {_speed(usual.speed_mbps)}{mtu}"


def _goodput_gbps(port: Port) -> float:
    share = 1.0
    if port.kind == "ethernet" and port.mtu > _HEADERS_BYTES:
        share = (port.mtu - _HEADERS_BYTES) / (port.mtu + _FRAME_BYTES)
    return port.speed_mbps * share / 1000


def _far_below_the_line(result: CheckResult) -> list[Finding]:
    """No peer shows what all of them lack: the line's own speed does."""
    line, peers = _line(result), fleet_median(result.edges)
    if line is None or peers is None or peers >= _LOW_SHARE * line[0]:
        return []
    return [
        Finding(
            id="RK-NET-026",
            status=Status.WARN,
            title=f"the whole fleet is at {peers / line[0]:.0%} of what its lines carry: "
            f"{peers:.3g} of {line[0]:.3g} Gbit/s",
            nodes=fold(item.name for item in result.facts if item.answered),
            reasons=(f"expected from the {line[1]}",),
            evidence=(
                Evidence("median of all pairs", round(peers, 4), "Gbit/s", round(line[0], 4),
                         line[1]),
            ),
            advice="Nodes are compared with each other, so a loss that all share shows only here: "
            "more --streams, other traffic, a limit in the cloud, the hosts' processors, MTU.",
        )
    ]  # fmt: skip


def _speed(mbps: int) -> str:
    return f"{mbps / 1000:g} Gbit/s" if mbps >= 1000 else f"{mbps} Mbit/s"
