"""What a preflight has measured -> Report: the network check's findings, and slow devices."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from relkit.findings import Evidence, Finding, Report, Status
from relkit.hosts import fold
from relkit.netcheck.check_result import CheckResult
from relkit.netcheck.device_score import DeviceScore
from relkit.netcheck.model import Thresholds
from relkit.netcheck.report.report import net_report
from relkit.netcheck.solve.judge import judge
from relkit.straggler.preflight.devices import FIGURES, LowDevice, low_devices

_ORDER = (Status.FAIL, Status.UNKNOWN, Status.WARN, Status.OK, Status.SKIP)
# Said better here: by device, over several rounds, and against a baseline.
_REPLACED = ("RK-NET-014",)
_ADVICE = {
    "compute_gflops": "Leave the node out (-x), and look at its clocks (`nvidia-smi -q -d CLOCK,"
    "PERFORMANCE` or `turbostat`), temperature, power limit, and what else runs there.",
    "memory_gbps": "Leave the node out (-x), and look at memory errors (`nvidia-smi -q -d ECC`, "
    "`edac-util`), missing memory features, NUMA settings, and what else runs there.",
}


def preflight_report(
    result: CheckResult,
    thresholds: Thresholds,
    baseline: Sequence[DeviceScore] = (),
    *,
    argv: Sequence[str] = (),
    started: float | None = None,
    duration_s: float = 0.0,
) -> Report:
    """The report of one preflight.

    Args:
        result: rounds of scores and of pairs; thresholds: for links, and slow_fraction for
            devices too.
        baseline: scores of an earlier good run.
        argv, started, duration_s: see Report.
    """
    network = net_report(
        result, judge(result, thresholds), thresholds,
        argv=argv, started=started, duration_s=duration_s,
    )  # fmt: skip
    low = low_devices(result.scores, thresholds.slow_fraction, baseline)
    slow = [device for device in low if device.is_certain]
    findings = [f for f in network.findings if f.id not in _REPLACED]
    findings += [_low(device) for device in low]
    findings += _without_scores(result)
    if result.scores and not low:
        findings.append(_even(result.scores, baseline))
    findings.sort(key=lambda finding: _ORDER.index(finding.status))
    facts = {
        **network.facts,
        "slow_devices": [
            {
                "node": device.node, "device": device.device, "figure": device.figure,
                "value": round(device.value, 2), "usual": round(device.usual, 2),
                "slowdown": round(device.slowdown, 4), "against": device.against,
            }
            for device in slow
        ],
        "devices": [
            {
                "node": score.node, "device": score.device,
                "compute_gflops": list(score.compute_gflops),
                "memory_gbps": list(score.memory_gbps),
            }
            for score in result.scores
        ],
    }  # fmt: skip
    return replace(network, command="straggler-preflight", findings=tuple(findings), facts=facts)


def _low(low: LowDevice) -> Finding:
    what, unit = {figure: (what, unit) for figure, what, unit in FIGURES}[low.figure]
    device = f"{low.device} of {low.node}"
    share = f"its {what} is {low.value / low.usual:.0%} of {low.against}"
    if low.is_certain:
        status = Status.FAIL
        title = f"{device} is slow: {share}, so that the same work takes {low.slowdown:.0%} longer"
        advice = _ADVICE[low.figure]
    else:
        status = Status.UNKNOWN
        title = f"could not tell whether {device} is slow: {share}, but its rounds differ too much"
        advice = (
            "Something else works on these nodes now and then. Stop it, or measure for longer "
            f"(--rounds {2 * low.rounds}, or a longer --duration)."
        )
    return Finding(
        id="RK-STRAG-021" if low.is_certain else "RK-STRAG-023",
        status=status,
        title=title,
        nodes=low.node,
        reasons=(
            f"median of {low.rounds} round(s), which scatter by {low.sigma:.1%}: "
            f"{low.value:.4g} {unit} instead of {low.usual:.4g}",
        ),
        evidence=(Evidence(what, round(low.value, 2), unit, round(low.usual, 2), "compute probe"),),
        advice=advice,
    )


def _without_scores(result: CheckResult) -> list[Finding]:
    scored = {score.node for score in result.scores}
    silent: dict[str, list[str]] = defaultdict(list)
    for node, why in result.score_errors.items():
        silent[why].append(node)
    return [
        Finding(
            id="RK-STRAG-022",
            status=Status.WARN if set(nodes) <= scored else Status.UNKNOWN,
            title=f"no full scores of {fold(nodes)}: {why}",
            nodes=fold(nodes),
            advice="Nothing is known of what is missing; run `relkit doctor` there.",
        )
        for why, nodes in silent.items()
    ]


def _even(scores: Sequence[DeviceScore], baseline: Sequence[DeviceScore]) -> Finding:
    kinds: dict[str, list[DeviceScore]] = defaultdict(list)
    for score in scores:
        kinds[score.kind].append(score)
    said = []
    for kind, alike in sorted(kinds.items()):
        middle = [median(score.compute_gflops) for score in alike if score.compute_gflops]
        if middle:
            said.append(f"{len(alike)} {kind}: {min(middle):.4g} to {max(middle):.4g} GFLOP/s")
    known = {(score.node, score.device) for score in baseline}
    held = sum((score.node, score.device) in known for score in scores)
    alone = all(len(alike) == 1 for alike in kinds.values()) and not held
    return Finding(
        id="RK-STRAG-020",
        status=Status.UNKNOWN if alone else Status.OK,
        title="one device of each kind only, and no baseline: there is nothing to compare with"
        if alone
        else "no device is slower than the others of its kind"
        + (" or its baseline" if held else ""),
        reasons=tuple(said),
        advice="Save a run with -o while all is well, and name it with --baseline."
        if alone
        else "",
    )
