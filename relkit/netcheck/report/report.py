"""A check and its verdict -> Report: what is at fault, how certain, and what was not measured."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from relkit.findings import Evidence, Finding, Report, Status
from relkit.hosts import fold
from relkit.netcheck.check_result import CheckResult, could_not_run, is_down
from relkit.netcheck.model import Diagnosis, Link, NetVerdict, Thresholds
from relkit.netcheck.report.fabric_findings import fabric_facts, fabric_findings, fabric_of
from relkit.netcheck.report.load_findings import load_facts, load_findings
from relkit.netcheck.report.node_findings import node_findings
from relkit.netcheck.report.size_findings import size_facts, size_findings
from relkit.netcheck.report.statistics import (
    NodeStatistics,
    by_node,
    fleet_median,
    of_link,
    positive_median,
)
from relkit.netcheck.report.transient_slowdown_finding import (
    interference_facts,
    transient_slowdown_finding,
)

_ORDER = (Status.FAIL, Status.UNKNOWN, Status.WARN, Status.OK, Status.SKIP)

_ADVICE = {
    "RK-NET-001": "Leave it out (-x), and look at its power, cable and console.",
    "RK-NET-002": "Leave it out (-x), and look at its port: link errors (`ethtool -S`), speed, "
    "cable, PCIe width, and other traffic there.",
    "RK-NET-003": "Look at routes, firewall rules and the switch ports between the two; both "
    "reach other nodes.",
    "RK-NET-004": "Look at what only these two share: their path through the switches (ECMP), "
    "routes, limits for that one peer.",
    "RK-NET-005": "Look at the switch's uplinks: errors, lost members of a bundle, "
    "oversubscription.",
}
_OUT_IN = {"slow out": "sending", "slow in": "receiving"}


def net_report(
    result: CheckResult,
    verdict: NetVerdict,
    thresholds: Thresholds,
    *,
    argv: Sequence[str] = (),
    started: float | None = None,
    duration_s: float = 0.0,
) -> Report:
    """The report of one check, online or from a bundle.

    Args:
        result: what was measured.
        verdict: of judge() with these thresholds.
        argv, started, duration_s: see Report.
    """
    statistics = by_node(result.nodes, result.edges)
    findings = [_diagnosed(item, result, statistics, thresholds) for item in verdict.diagnoses]
    findings += load_findings(result, verdict)
    findings += _inconclusive(verdict)
    findings += _unanswered(result)
    findings += _not_run(result)
    findings += node_findings(result)
    findings += transient_slowdown_finding(verdict)
    findings += size_findings(result)
    findings += fabric_findings(result)
    findings.append(_coverage(result, verdict))
    # Nodes of one machine are not compared: nothing is known of how they compare.
    is_good = not any(f.status in (Status.FAIL, Status.UNKNOWN) for f in findings)
    if is_good and not result.one_host:
        findings.append(_healthy(result))
    findings.sort(key=lambda finding: _ORDER.index(finding.status))
    return Report(
        command="netcheck",
        findings=tuple(findings),
        facts=_facts(result, verdict, thresholds, statistics),
        started=time.time() if started is None else started,
        duration_s=duration_s,
        argv=tuple(argv),
    )


def _diagnosed(
    item: Diagnosis,
    result: CheckResult,
    statistics: dict[str, NodeStatistics],
    thresholds: Thresholds,
) -> Finding:
    number = {
        ("node", True): "RK-NET-001",
        ("node", False): "RK-NET-002",
        ("link", True): "RK-NET-003",
        ("link", False): "RK-NET-004",
    }.get((item.kind, item.fault == "dead"), "RK-NET-005")
    usual = fleet_median(result.edges)
    evidence = [Evidence("confidence", f"{100 * item.confidence:.4g} %", how="solver")]
    if item.kind == "node":
        evidence += _node_evidence(statistics[item.nodes[0]], usual, thresholds)
    elif item.kind == "link":
        evidence += _link_evidence(item, result, usual, thresholds)
    return Finding(
        id=number,
        status=Status.FAIL,
        title=_title(item),
        nodes=fold(item.nodes),
        reasons=item.reasons,
        evidence=tuple(evidence),
        advice=_ADVICE[number],
    )


def _title(item: Diagnosis) -> str:
    if item.kind == "node":
        what = item.nodes[0]
    elif item.kind == "link":
        what = f"the link between {' and '.join(item.nodes)}"
    else:
        what = f"the uplink of {item.name} ({len(item.nodes)} nodes)"
    if item.fault == "dead":
        return f"{what} is dead"
    way = f" at {_OUT_IN[item.fault]} only" if item.fault in _OUT_IN else ""
    return f"{what} is slow{way}: {100 * item.severity:.0f} % of the expected bandwidth is missing"


def _node_evidence(
    mine: NodeStatistics, usual: float | None, thresholds: Thresholds
) -> list[Evidence]:
    bound = thresholds.min_bandwidth_gbps or None
    evidence = [
        Evidence(name, round(value, 4), "Gbit/s", bound, "median over its edges")
        for name, value in (("sends", mine.out_gbps), ("receives", mine.in_gbps))
        if value is not None
    ]
    evidence += _fleet_evidence(usual)
    if mine.failed:
        text = f"{mine.failed} of {mine.tested}"
        evidence.append(Evidence("failed measurements", text, how="edges, both directions"))
    return evidence


def _link_evidence(
    item: Diagnosis, result: CheckResult, usual: float | None, thresholds: Thresholds
) -> list[Evidence]:
    good, bad = of_link(Link.between(*item.nodes), result.edges)
    bound = thresholds.min_bandwidth_gbps or None
    evidence = []
    for source, target in (item.nodes, item.nodes[::-1]):
        speed = positive_median(
            e.bandwidth_gbps for e in good if (e.source, e.target) == (source, target)
        )
        if speed is not None:
            name = f"{source} to {target}"
            evidence.append(Evidence(name, round(speed, 4), "Gbit/s", bound, "edges of this link"))
    evidence += _fleet_evidence(usual)
    if bad:
        words = "; ".join(dict.fromkeys(str(edge.failure) for edge in bad))
        evidence.append(Evidence("failed measurements", len(bad), how=words))
    return evidence


def _fleet_evidence(usual: float | None) -> list[Evidence]:
    if usual is None:
        return []
    return [Evidence("the fleet", round(usual, 4), "Gbit/s", how="median over all edges")]


def _inconclusive(verdict: NetVerdict) -> list[Finding]:
    return [
        Finding(
            id="RK-NET-007",
            status=Status.UNKNOWN,
            title=sentence,
            nodes=fold(members),
            advice="Check them again together with nodes that are known to be good.",
        )
        for members, sentence in verdict.inconclusive
    ]


def _unanswered(result: CheckResult) -> list[Finding]:
    """Nodes without an agent, grouped by the reason."""
    groups: dict[str, list[str]] = {}
    for facts in result.facts:
        if not facts.answered and not is_down(facts):
            groups.setdefault(facts.detail or "no reason was given", []).append(facts.name)
    return [
        Finding(
            id="RK-NET-006",
            status=Status.UNKNOWN,
            title=f"no answer from {fold(names)}: nothing is known about "
            f"{'it' if len(names) == 1 else 'them'}",
            nodes=fold(names),
            reasons=(why,),
            advice="Try to reach the node by hand in the same way; relkit must be installed there "
            "(--relkit PATH).",
        )
        for why, names in groups.items()
    ]


def _not_run(result: CheckResult) -> list[Finding]:
    """Pairs whose probe could not run, which says nothing about the network between them."""
    broken = [edge for edge in result.edges if could_not_run(edge)]
    links = sorted({edge.link for edge in broken})
    if not links:
        return []
    reasons = Counter(edge.detail or str(edge.failure) for edge in broken)
    pairs = f"{len(links):,} pairs" if len(links) > 1 else f"{links[0].low} and {links[0].high}"
    return [
        Finding(
            id="RK-NET-018",
            status=Status.UNKNOWN,
            title=f"the {result.probe} probe could not run between {pairs}",
            nodes=fold({name for link in links for name in (link.low, link.high)}),
            reasons=tuple(reason for reason, _ in reasons.most_common(3)),
            advice="The reasons are its errors; `--probe tcp` needs nothing besides relkit.",
        )
    ]


def _coverage(result: CheckResult, verdict: NetVerdict) -> Finding:
    tested, possible = verdict.tested_links, verdict.possible_links
    if not possible:
        return Finding(
            "RK-NET-013",
            Status.UNKNOWN,
            "a single node has no link to measure",
            advice="Name at least two nodes.",
        )
    share = Evidence("pairs measured", tested, "", possible, f"{result.rounds} rounds")
    if not tested:
        return Finding(
            "RK-NET-013",
            Status.UNKNOWN,
            "no pair of nodes was measured",
            evidence=(share,),
            advice="At least two nodes must answer.",
        )
    if tested >= possible:
        which = f"all {possible:,} pairs were" if possible > 1 else "the only pair was"
        return Finding("RK-NET-013", Status.OK, f"{which} measured",
                       evidence=(share,))  # fmt: skip
    return Finding(
        "RK-NET-013",
        # Screening measures few pairs by design; only in full mode is a gap unexpected.
        Status.WARN if result.mode == "full" else Status.OK,
        f"{tested:,} of {possible:,} pairs were measured; a single bad link among the other "
        f"{possible - tested:,} would have been missed",
        evidence=(share,),
        advice="`--mode full` measures every pair.",
    )


def _healthy(result: CheckResult) -> Finding:
    usual = fleet_median(result.edges)
    evidence = () if usual is None else (
        Evidence("median bandwidth", round(usual, 4), "Gbit/s", how=fabric_of(result)),
    )  # fmt: skip
    return Finding(
        "RK-NET-015",
        Status.OK,
        f"all {len(result.nodes)} nodes are equally fast, as far as they were measured",
        nodes=fold(result.nodes),
        evidence=evidence,
    )


def _facts(
    result: CheckResult,
    verdict: NetVerdict,
    thresholds: Thresholds,
    statistics: dict[str, NodeStatistics],
) -> dict[str, Any]:
    usual = fleet_median(result.edges)
    return {
        "verdict": _verdict_facts(verdict, result),
        **_diagnosis_facts(verdict),
        "unknown": [f.name for f in result.facts if not f.answered and not is_down(f)],
        "coverage": {
            "tested_links": verdict.tested_links,
            "possible_links": verdict.possible_links,
            "share": round(verdict.tested_links / verdict.possible_links, 6)
            if verdict.possible_links
            else 0.0,
        },
        "rounds": result.rounds,
        "edges": len(result.edges),
        "mode": result.mode,
        "probe": result.probe,
        **fabric_facts(result),
        "median_gbps": None if usual is None else round(usual, 4),
        "thresholds": {
            "slow_fraction": thresholds.slow_fraction,
            "min_bandwidth_gbps": thresholds.min_bandwidth_gbps,
            "max_latency_us": thresholds.max_latency_us,
            "baseline_links": len(thresholds.baseline),
        },
        "interference": interference_facts(verdict.interference),
        **size_facts(result),
        **load_facts(verdict.load),
        "nodes": _rows(result, statistics),
    }


def _verdict_facts(verdict: NetVerdict, result: CheckResult) -> dict[str, Any]:
    by_kind: dict[str, list[Diagnosis]] = {"node": [], "link": [], "group": []}
    for item in verdict.diagnoses:
        by_kind.setdefault(item.kind, []).append(item)
    return {
        "nodes": list(dict.fromkeys(item.nodes[0] for item in by_kind["node"])),
        "links": [list(item.nodes) for item in by_kind["link"]],
        "groups": list(
            dict.fromkeys(
                [_switch(item, result) for item in by_kind["group"]]
                + [item.switch for item in (verdict.load.narrow if verdict.load else ())]
            )
        ),
    }


def _diagnosis_facts(verdict: NetVerdict) -> dict[str, Any]:
    """Diagnoses and open questions, also under the keys of earlier versions."""
    diagnoses = [
        {
            "kind": item.kind,
            "nodes": list(item.nodes),
            "name": item.name,
            "fault": item.fault,
            "severity": round(item.severity, 4),
            "confidence": round(item.confidence, 4),
            "reasons": list(item.reasons),
        }
        for item in verdict.diagnoses
    ]
    inconclusive = [
        {"nodes": list(members), "sentence": sentence} for members, sentence in verdict.inconclusive
    ]
    return {"diagnoses": diagnoses, "inconclusive": inconclusive}


def _switch(item: Diagnosis, result: CheckResult) -> str:
    """The name of the switch as the topology file has it."""
    return result.groups.get(item.nodes[0], item.name) if item.nodes else item.name


def _rows(result: CheckResult, statistics: dict[str, NodeStatistics]) -> list[dict[str, Any]]:
    def short(value: float | None) -> float | None:
        return None if value is None else float(f"{value:.4g}")

    return [
        {
            "node": facts.name,
            "answered": facts.answered,
            "out_gbps": short(statistics[facts.name].out_gbps),
            "in_gbps": short(statistics[facts.name].in_gbps),
            "both_ways_gbps": short(statistics[facts.name].both_ways_gbps),
            "latency_us": short(statistics[facts.name].latency_us),
            "failed_edges": statistics[facts.name].failed,
            "address": facts.address,
            "interface": facts.interface,
            "mtu": facts.mtu or None,
            "speed_mbps": facts.speed_mbps or None,
            "duplex": facts.duplex,
            "compute_gflops": short(facts.compute_gflops or None),
            "memory_gbps": short(facts.memory_gbps or None),
            "switch": result.groups.get(facts.name, ""),
            "hostname": facts.hostname,
            "detail": facts.detail or result.lost.get(facts.name, ""),
        }
        for facts in result.facts
    ]
