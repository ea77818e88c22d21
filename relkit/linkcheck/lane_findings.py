"""Counters of single lanes -> warnings."""

from __future__ import annotations

from collections.abc import Sequence

from relkit.findings import Evidence, Finding, Status
from relkit.linkcheck.model import Counter

_HOW = "NVLink, nvidia-ml-py"


def lane_findings(counters: Sequence[Counter], host: str) -> list[Finding]:
    """Lanes that are down beside lanes that are up, and errors that grew while data flowed.

    A GPU whose lanes are all down has none fitted, or uses none: that is no finding.
    """
    lanes = [c for c in counters if c.name == "active"]
    in_use = {c.gpu for c in lanes if c.before or c.after}
    findings = [
        Finding(
            "RK-LNK-010",
            Status.WARN,
            f"NVLink lane {c.lane} of GPU {c.gpu} is down, and others of the GPU are up",
            nodes=host,
            evidence=(Evidence("active", c.after, threshold=1, how=_HOW),),
            advice="Reset the GPU or the fabric manager; if it stays down, have the board checked.",
        )
        for c in lanes
        if c.gpu in in_use and not c.after
    ]
    findings += [
        Finding(
            "RK-LNK-011",
            Status.WARN,
            f"{c.name} on NVLink lane {c.lane} of GPU {c.gpu} grew by {c.after - c.before}",
            nodes=host,
            evidence=(Evidence(c.name, c.after, threshold=c.before, how=_HOW),),
            advice="Watch this lane: errors under load come before a loss.",
        )
        for c in counters
        if c.name != "active" and c.after > c.before
    ]
    return findings
