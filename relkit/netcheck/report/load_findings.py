"""Findings about uplinks that were loaded on purpose: narrow ones, and those that stay open."""

from __future__ import annotations

from typing import Any

from relkit.findings import Evidence, Finding, Status
from relkit.hosts import fold
from relkit.netcheck.check_result import CheckResult
from relkit.netcheck.model import LoadVerdict, NarrowUplink, NetVerdict

_WAYS = {"out": "sending", "in": "receiving"}


def load_findings(result: CheckResult, verdict: NetVerdict) -> list[Finding]:
    """One for each switch whose uplink is too narrow; one for all that cannot be told apart."""
    load = verdict.load
    if load is None:
        return []
    known = {result.groups.get(d.nodes[0], "") for d in verdict.diagnoses if d.kind == "group"}
    by_switch: dict[str, list[NarrowUplink]] = {}
    for item in load.narrow:
        if item.switch not in known:
            by_switch.setdefault(item.switch, []).append(item)
    findings = [_narrow(ways) for ways in by_switch.values()]
    doubtful = [name for name in load.doubtful if name not in known]
    return findings + ([_doubtful(doubtful, result)] if doubtful else [])


def load_facts(load: LoadVerdict | None) -> dict[str, Any]:
    """For the JSON document; empty where no uplink was loaded."""
    if load is None:
        return {}
    return {
        "load": {
            "rounds": load.rounds,
            "tested_uplinks": load.tested,
            "switches": load.switches,
            "share": load.share,
            "narrow": [
                {
                    "switch": item.switch,
                    "way": item.way,
                    "pairs": item.pairs,
                    "share": item.share,
                    "alone_share": item.alone_share,
                }
                for item in load.narrow
            ],
            "doubtful": list(load.doubtful),
        }
    }


def _narrow(ways: list[NarrowUplink]) -> Finding:
    worst = min(ways, key=lambda item: item.share)
    only = f" at {_WAYS[worst.way]} only" if len(ways) == 1 else ""
    is_together = any(item.is_only_together for item in ways)
    when = " when they are used together" if is_together else ""
    return Finding(
        # One pair alone is enough to show the other.
        id="RK-NET-024" if is_together else "RK-NET-005",
        status=Status.FAIL,
        title=f"the uplink of switch {worst.switch} is too narrow{only}: {worst.pairs} pairs at "
        f"once reach {worst.share:.0%} of their speed{when}",
        nodes=fold(worst.nodes),
        reasons=(
            "all of its nodes were measured at once, on purpose, with switches that carry as much: "
            f"slow in {worst.rounds} rounds",
            _alone(worst),
            "none of its nodes is at fault by that",
        ),
        evidence=tuple(
            Evidence(f"{_WAYS[item.way]}, {item.pairs} pairs", round(100 * item.share, 1), "%",
                     how="median share of the speed of a pair inside a switch")
            for item in ways
        ),
        advice="Look at the switch's uplinks: a lost member of a bundle, a port at a lower speed, "
        "errors, paths that all hash to one link.",
    )  # fmt: skip


def _alone(item: NarrowUplink) -> str:
    if item.alone_share is None:
        return "one pair alone could not be measured: no other uplink is known to be wide enough"
    return f"one pair alone reaches {item.alone_share:.0%}"


def _doubtful(names: list[str], result: CheckResult) -> Finding:
    nodes = [node for node, switch in result.groups.items() if switch in names]
    return Finding(
        id="RK-NET-007",
        status=Status.UNKNOWN,
        title=f"the uplink of {' or '.join(names[:6])} is slow when many pairs use it at once, and "
        "it is not known whose",
        nodes=fold(nodes),
        reasons=("no other switch is known to carry as much, to measure them with",),
        advice="Measure them together with a switch that is known to be good.",
    )
