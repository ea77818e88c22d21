"""What the nodes' own facts give away: a wrong network, odd settings, clocks, strangers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from statistics import median

from relkit.findings import Evidence, Finding, Status
from relkit.hosts import fold
from relkit.netcheck.model import NodeFacts
from relkit.netcheck.solve.outcome import Outcome

# Interfaces that carry no traffic between machines, or only by way of something slow.
_SIDE_ROADS = re.compile(r"(docker|virbr|cni|flannel|cali|tun|tap|wlan|wl|usb)\w*")
_SKEW_S = 1.0
_COMPUTE_WARN, _COMPUTE_FAIL = 0.85, 0.5


def node_findings(outcome: Outcome) -> list[Finding]:
    """Findings that no edge is needed for."""
    facts = [item for item in outcome.facts if item.answered]
    return [
        *_side_roads(facts, outcome),
        *_odd_ones(facts),
        *_one_host(outcome),
        *_twins(outcome),
        *_strangers(facts),
        *_clocks(facts),
        *_compute(facts),
        *(Finding("RK-NET-017", Status.WARN, note) for note in outcome.notes),
    ]


def _side_roads(facts: Sequence[NodeFacts], outcome: Outcome) -> list[Finding]:
    odd = [item for item in facts if _SIDE_ROADS.fullmatch(item.interface)]
    if outcome.twins == () and len({item.hostname for item in facts}) > 1:
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
            evidence=tuple(Evidence(i.name, i.interface, how="route to the peer") for i in odd[:8]),
            advice="Training would use that network too: name the nodes by their addresses in "
            "the fast one, and set NCCL_SOCKET_IFNAME or GLOO_SOCKET_IFNAME.",
        )
    ]


def _odd_ones(facts: Sequence[NodeFacts]) -> list[Finding]:
    """Where most nodes agree, and a few do not."""
    looks: tuple[tuple[str, str, str, Callable[[NodeFacts], str | int], str], ...] = (
        (
            "RK-NET-008",
            "interface",
            "",
            lambda item: item.interface,
            "Training would use that interface too: is it the fast network?",
        ),
        (
            "RK-NET-009",
            "MTU",
            "bytes",
            lambda item: item.mtu,
            "Set one MTU on all hosts and switch ports; a mismatch stalls large messages.",
        ),
        (
            "RK-NET-010",
            "link speed",
            "Mbit/s",
            lambda item: item.speed_mbps,
            "The port has trained to another speed: cable, transceiver, or switch port.",
        ),
        (
            "RK-NET-010",
            "duplex",
            "",
            lambda item: item.duplex,
            "Set both ends of the cable to automatic negotiation.",
        ),
    )
    found = []
    for number, what, unit, of, advice in looks:
        known = [item for item in facts if of(item)]
        ranked = Counter(of(item) for item in known).most_common()
        if len(ranked) < 2:
            continue
        usual, count = ranked[0]
        odd = [item for item in known if of(item) != usual]
        values = ", ".join(str(value) for value, _ in ranked[1:4])
        end = f" {unit}" if unit else ""
        split = ranked[1][1] == count
        found.append(
            Finding(
                id=number,
                status=Status.WARN,
                title=f"{what} differs: {fold(i.name for i in odd)} with {values}{end}, "
                f"{count} {'nodes' if count > 1 else 'node'} with {usual}{end}"
                + ("; which of them is right, nobody can tell from here" if split else ""),
                nodes=fold(i.name for i in odd),
                evidence=tuple(
                    Evidence(i.name, of(i), unit, usual, f"interface {i.interface}")
                    for i in odd[:8]
                ),
                advice=advice,
            )
        )
    return found


def _one_host(outcome: Outcome) -> list[Finding]:
    if not outcome.one_host:
        return []
    return [
        Finding(
            id="RK-NET-019",
            status=Status.WARN,
            title="all agents ran on one machine: the figures are those of its processor and "
            "loopback, not of a network",
            nodes=fold(outcome.nodes),
            reasons=(
                "who is slower than the rest is not judged, because it would only mean that the "
                "machine is busy; bounds that are set (--min-bandwidth and others) are",
            ),
            advice="Check real hosts with --via ssh, slurm, kubectl or command.",
        )
    ]


def _twins(outcome: Outcome) -> list[Finding]:
    return [
        Finding(
            id="RK-NET-016",
            status=Status.WARN,
            title=f"{' and '.join(names[:6])} are the same machine under several names",
            nodes=fold(names),
            reasons=("what was measured between them never left the machine",),
            advice="Name every machine once.",
        )
        for names in outcome.twins
    ]


def _strangers(facts: Sequence[NodeFacts]) -> list[Finding]:
    met = [item for item in facts if item.strangers > 0]
    if not met:
        return []
    total = sum(item.strangers for item in met)
    return [
        Finding(
            id="RK-NET-011",
            status=Status.WARN,
            title=f"{total} connection{'s' if total > 1 else ''} to probe listeners did not know "
            "the secret of the run, and were dropped",
            nodes=fold(i.name for i in met),
            evidence=tuple(
                Evidence(i.name, i.strangers, "connections", 0, "probe listener") for i in met[:8]
            ),
            advice="A port scanner? It also disturbs what is measured.",
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
                for i in off[:8]
            ),
            advice="Look at chrony or ntpd there: logs of different nodes cannot be compared.",
        )
    ]


def _compute(facts: Sequence[NodeFacts]) -> list[Finding]:
    found = []
    looks: tuple[tuple[str, str, Callable[[NodeFacts], float]], ...] = (
        ("arithmetic", "GFLOP/s", lambda item: item.compute_gflops),
        ("memory bandwidth", "GB/s", lambda item: item.memory_gbps),
    )
    for what, unit, of in looks:
        scored = [(item, of(item)) for item in facts if of(item) > 0]
        if len(scored) < 3:
            continue
        usual = median(value for _, value in scored)
        low = [(item, value) for item, value in scored if value < _COMPUTE_WARN * usual]
        if not low:
            continue
        item, value = min(low, key=lambda pair: pair[1])
        found.append(
            Finding(
                id="RK-NET-014",
                status=Status.FAIL if value < _COMPUTE_FAIL * usual else Status.WARN,
                title=f"{what} of {fold(i.name for i, _ in low)} is low: {item.name} reaches "
                f"{100 * value / usual:.0f} % of the fleet's median",
                nodes=fold(i.name for i, _ in low),
                evidence=tuple(
                    Evidence(
                        i.name, round(v, 2), unit, round(_COMPUTE_WARN * usual, 2), "compute probe"
                    )
                    for i, v in low[:8]
                ),
                advice="Look at clocks, temperature and what else runs there; this says "
                "nothing of its network.",
            )
        )
    return found
