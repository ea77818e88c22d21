"""Outcome and verdict -> Report: findings that say who, how sure, and what was never looked at."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from relkit.findings import Evidence, Finding, Report, Status
from relkit.hosts import fold
from relkit.netcheck.model import Conviction, Link, NetVerdict, Thresholds
from relkit.netcheck.report.node_findings import node_findings
from relkit.netcheck.report.size_findings import size_facts, size_findings
from relkit.netcheck.report.statistics import NodeFigures, by_node, fleet_median, middle, of_link
from relkit.netcheck.report.transient_slowdown_finding import hiccup_finding, interference_facts
from relkit.netcheck.solve.outcome import Outcome, could_not_run, is_down

_ORDER = (Status.FAIL, Status.UNKNOWN, Status.WARN, Status.OK, Status.SKIP)

_ADVICE = {
    "RK-NET-001": "Leave it out (-x), and look at its power, cable and console.",
    "RK-NET-002": "Leave it out (-x), and look at its port: link errors (`ethtool -S`), speed, "
    "cable, PCIe width, and what else sends there.",
    "RK-NET-003": "Look at routes, firewall rules and the switch ports between the two; both "
    "reach others.",
    "RK-NET-004": "Look at what only these two share: their path through the switches (ECMP), "
    "routes, limits set for that one peer.",
    "RK-NET-005": "Look at the switch's uplinks: errors, lost members of a bundle, "
    "oversubscription.",
}
_OUT_IN = {"slow out": "sending", "slow in": "receiving"}


def net_report(
    outcome: Outcome,
    verdict: NetVerdict,
    thresholds: Thresholds,
    *,
    argv: Sequence[str] = (),
    started: float | None = None,
    duration_s: float = 0.0,
) -> Report:
    """The report of one check, online or from a bundle.

    Args:
        outcome: what was measured; verdict: what judge() made of it with these thresholds.
        argv, started, duration_s: see Report.
    """
    figures = by_node(outcome.nodes, outcome.edges)
    findings = [_convicted(item, outcome, figures, thresholds) for item in verdict.convictions]
    findings += _undecided(verdict)
    findings += _unanswered(outcome)
    findings += _not_run(outcome)
    findings += node_findings(outcome)
    findings += hiccup_finding(verdict)
    findings += size_findings(outcome)
    findings.append(_coverage(outcome, verdict))
    if not any(f.status in (Status.FAIL, Status.UNKNOWN) for f in findings):
        findings.append(_healthy(outcome))
    findings.sort(key=lambda finding: _ORDER.index(finding.status))
    return Report(
        command="netcheck",
        findings=tuple(findings),
        facts=_facts(outcome, verdict, thresholds, figures),
        started=time.time() if started is None else started,
        duration_s=duration_s,
        argv=tuple(argv),
    )


def _convicted(
    item: Conviction,
    outcome: Outcome,
    figures: dict[str, NodeFigures],
    thresholds: Thresholds,
) -> Finding:
    number = {
        ("node", True): "RK-NET-001",
        ("node", False): "RK-NET-002",
        ("link", True): "RK-NET-003",
        ("link", False): "RK-NET-004",
    }.get((item.kind, item.fault == "dead"), "RK-NET-005")
    usual = fleet_median(outcome.edges)
    evidence = [Evidence("confidence", f"{100 * item.confidence:.4g} %", how="solver")]
    if item.kind == "node":
        evidence += _node_evidence(figures[item.nodes[0]], usual, thresholds)
    elif item.kind == "link":
        evidence += _link_evidence(item, outcome, usual, thresholds)
    return Finding(
        id=number,
        status=Status.FAIL,
        title=_title(item),
        nodes=fold(item.nodes),
        reasons=item.reasons,
        evidence=tuple(evidence),
        advice=_ADVICE[number],
    )


def _title(item: Conviction) -> str:
    if item.kind == "node":
        what = item.nodes[0]
    elif item.kind == "link":
        what = f"the link between {' and '.join(item.nodes)}"
    else:
        what = f"the uplink of {item.name} ({len(item.nodes)} nodes)"
    if item.fault == "dead":
        return f"{what} is dead"
    way = f" at {_OUT_IN[item.fault]}, not the other way" if item.fault in _OUT_IN else ""
    return f"{what} is slow{way}: {100 * item.severity:.0f} % of the expected bandwidth is missing"


def _node_evidence(
    mine: NodeFigures, usual: float | None, thresholds: Thresholds
) -> list[Evidence]:
    bound = thresholds.min_bandwidth_gbps or None
    found = [
        Evidence(name, round(value, 4), "Gbit/s", bound, "median over its edges")
        for name, value in (("sends", mine.out_gbps), ("receives", mine.in_gbps))
        if value is not None
    ]
    found += _fleet_evidence(usual)
    if mine.failed:
        text = f"{mine.failed} of {mine.tested}"
        found.append(Evidence("failed measurements", text, how="edges, both directions"))
    return found


def _link_evidence(
    item: Conviction, outcome: Outcome, usual: float | None, thresholds: Thresholds
) -> list[Evidence]:
    good, bad = of_link(Link.between(*item.nodes), outcome.edges)
    bound = thresholds.min_bandwidth_gbps or None
    found = []
    for source, target in (item.nodes, item.nodes[::-1]):
        speed = middle(e.bandwidth_gbps for e in good if (e.source, e.target) == (source, target))
        if speed is not None:
            name = f"{source} to {target}"
            found.append(Evidence(name, round(speed, 4), "Gbit/s", bound, "edges of this link"))
    found += _fleet_evidence(usual)
    if bad:
        words = "; ".join(dict.fromkeys(str(edge.failure) for edge in bad))
        found.append(Evidence("failed measurements", len(bad), how=words))
    return found


def _fleet_evidence(usual: float | None) -> list[Evidence]:
    if usual is None:
        return []
    return [Evidence("the fleet", round(usual, 4), "Gbit/s", how="median over all edges")]


def _undecided(verdict: NetVerdict) -> list[Finding]:
    return [
        Finding(
            id="RK-NET-007",
            status=Status.UNKNOWN,
            title=sentence,
            nodes=fold(members),
            advice="Check them again together with nodes that are known to be good.",
        )
        for members, sentence in verdict.undecided
    ]


def _unanswered(outcome: Outcome) -> list[Finding]:
    """Nodes of which nothing is known; alike reasons together."""
    groups: dict[str, list[str]] = {}
    for facts in outcome.facts:
        if not facts.answered and not is_down(facts):
            groups.setdefault(facts.detail or "no reason was given", []).append(facts.name)
    return [
        Finding(
            id="RK-NET-006",
            status=Status.UNKNOWN,
            title=f"no answer from {fold(names)}: nothing is known of "
            f"{'it' if len(names) == 1 else 'them'}",
            nodes=fold(names),
            reasons=(why,),
            advice="Reach the node by hand the same way; relkit must be installed there "
            "(--relkit PATH).",
        )
        for why, names in groups.items()
    ]


def _not_run(outcome: Outcome) -> list[Finding]:
    """Pairs whose probe could not run: no word on the network between them."""
    broken = [edge for edge in outcome.edges if could_not_run(edge)]
    links = sorted({edge.link for edge in broken})
    if not links:
        return []
    reasons = Counter(edge.detail or str(edge.failure) for edge in broken)
    pairs = f"{len(links):,} pairs" if len(links) > 1 else f"{links[0].low} and {links[0].high}"
    return [
        Finding(
            id="RK-NET-018",
            status=Status.UNKNOWN,
            title=f"the {outcome.probe} probe could not run between {pairs}",
            nodes=fold({name for link in links for name in (link.low, link.high)}),
            reasons=tuple(reason for reason, _ in reasons.most_common(3)),
            advice="Its errors are above; `--probe tcp` needs nothing but relkit itself.",
        )
    ]


def _coverage(outcome: Outcome, verdict: NetVerdict) -> Finding:
    tested, possible = verdict.tested_links, verdict.possible_links
    if not possible:
        return Finding(
            "RK-NET-013",
            Status.UNKNOWN,
            "a single node has no link to measure",
            advice="Name at least two nodes.",
        )
    share = Evidence("pairs measured", tested, "", possible, f"{outcome.rounds} rounds")
    if not tested:
        return Finding(
            "RK-NET-013",
            Status.UNKNOWN,
            "not one pair of nodes was measured",
            evidence=(share,),
            advice="At least two nodes must answer.",
        )
    if tested >= possible:
        which = f"all {possible:,} pairs were" if possible > 1 else "the only pair was"
        return Finding("RK-NET-013", Status.OK, f"{which} measured",
                       evidence=(share,))  # fmt: skip
    return Finding(
        "RK-NET-013",
        # Screening tests few pairs by design; only a gap in what was asked for deserves a look.
        Status.WARN if outcome.mode == "full" else Status.OK,
        f"{tested:,} of {possible:,} pairs were measured; a single bad link among the other "
        f"{possible - tested:,} would not have been seen",
        evidence=(share,),
        advice="`--mode full` measures every pair.",
    )


def _healthy(outcome: Outcome) -> Finding:
    usual = fleet_median(outcome.edges)
    figure = () if usual is None else (
        Evidence("median bandwidth", round(usual, 4), "Gbit/s", how=f"{outcome.probe} probe"),
    )  # fmt: skip
    return Finding(
        "RK-NET-015",
        Status.OK,
        f"all {len(outcome.nodes)} nodes are as fast as each other where they were measured",
        nodes=fold(outcome.nodes),
        evidence=figure,
    )


def _facts(
    outcome: Outcome,
    verdict: NetVerdict,
    thresholds: Thresholds,
    figures: dict[str, NodeFigures],
) -> dict[str, Any]:
    usual = fleet_median(outcome.edges)
    by_kind: dict[str, list[Conviction]] = {"node": [], "link": [], "group": []}
    for item in verdict.convictions:
        by_kind.setdefault(item.kind, []).append(item)
    return {
        "verdict": {
            "nodes": list(dict.fromkeys(c.nodes[0] for c in by_kind["node"])),
            "links": [list(c.nodes) for c in by_kind["link"]],
            "groups": [_switch(c, outcome) for c in by_kind["group"]],
        },
        "convictions": [
            {
                "kind": c.kind,
                "nodes": list(c.nodes),
                "name": c.name,
                "fault": c.fault,
                "severity": round(c.severity, 4),
                "confidence": round(c.confidence, 4),
                "reasons": list(c.reasons),
            }
            for c in verdict.convictions
        ],
        "undecided": [{"nodes": list(m), "sentence": text} for m, text in verdict.undecided],
        "unknown": [f.name for f in outcome.facts if not f.answered and not is_down(f)],
        "coverage": {
            "tested_links": verdict.tested_links,
            "possible_links": verdict.possible_links,
            "share": round(verdict.tested_links / verdict.possible_links, 6)
            if verdict.possible_links
            else 0.0,
        },
        "rounds": outcome.rounds,
        "edges": len(outcome.edges),
        "mode": outcome.mode,
        "probe": outcome.probe,
        "median_gbps": None if usual is None else round(usual, 4),
        "thresholds": {
            "slow_fraction": thresholds.slow_fraction,
            "min_bandwidth_gbps": thresholds.min_bandwidth_gbps,
            "max_latency_us": thresholds.max_latency_us,
            "baseline_links": len(thresholds.baseline),
        },
        "interference": interference_facts(verdict.interference),
        **size_facts(outcome),
        "nodes": _rows(outcome, figures),
    }


def _switch(item: Conviction, outcome: Outcome) -> str:
    """The name of the switch as the topology file has it."""
    return outcome.groups.get(item.nodes[0], item.name) if item.nodes else item.name


def _rows(outcome: Outcome, figures: dict[str, NodeFigures]) -> list[dict[str, Any]]:
    def short(value: float | None) -> float | None:
        return None if value is None else float(f"{value:.4g}")

    return [
        {
            "node": facts.name,
            "answered": facts.answered,
            "out_gbps": short(figures[facts.name].out_gbps),
            "in_gbps": short(figures[facts.name].in_gbps),
            "both_ways_gbps": short(figures[facts.name].both_ways_gbps),
            "latency_us": short(figures[facts.name].latency_us),
            "failed_edges": figures[facts.name].failed,
            "address": facts.address,
            "interface": facts.interface,
            "mtu": facts.mtu or None,
            "speed_mbps": facts.speed_mbps or None,
            "duplex": facts.duplex,
            "compute_gflops": short(facts.compute_gflops or None),
            "memory_gbps": short(facts.memory_gbps or None),
            "switch": outcome.groups.get(facts.name, ""),
            "hostname": facts.hostname,
            "detail": facts.detail or outcome.lost.get(facts.name, ""),
        }
        for facts in outcome.facts
    ]
