"""Verdict on the links of a host -> Report."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from typing import Any

from relkit.errors import NoLinkHardware
from relkit.findings import Evidence, Finding, Report, Status
from relkit.linkcheck.model import (
    Blame,
    Checked,
    Counter,
    Failure,
    FaultPlace,
    Inventory,
    LinkState,
    LinkVerdict,
    Measurement,
    NodeVerdict,
    Way,
)

_LINK_IDS = {
    LinkState.SLOW: "RK-LNK-003",
    LinkState.LOST: "RK-LNK-004",
    LinkState.UNKNOWN: "RK-LNK-005",
}
_BLAME_IDS = {
    FaultPlace.SOCKET: "RK-LNK-006",
    FaultPlace.BOX: "RK-LNK-007",
    FaultPlace.INCONCLUSIVE: "RK-LNK-008",
}
_BLAME_ADVICE = {
    FaultPlace.SOCKET: "Swap this socket's optical module and cable; if the fault stays, the GPU.",
    FaultPlace.BOX: "Have the switch box looked at: both GPUs and their cables are good.",
    FaultPlace.INCONCLUSIVE: "Swap the two sockets' cables and run linkcheck again: see which one "
    "it follows.",
}
_HOW = "NVLink, nvidia-ml-py"


def link_report(
    checked: Checked,
    verdict: NodeVerdict,
    *,
    min_bandwidth_mb_s: float,
    argv: Sequence[str] = (),
    started: float | None = None,
    duration_s: float = 0.0,
) -> Report:
    """The report of one host: the verdict on the host first, then link by link.

    Args:
        checked: what was measured; verdict: what judge() made of it.
        min_bandwidth_mb_s: the bound that was used, MB/s.
        argv: the command line; started: Unix time, s; duration_s: how long it took.
    """
    host = socket.gethostname()
    findings = [_host(checked, verdict, min_bandwidth_mb_s, host)]
    # A bad link of a host that passes is a warning; where it fails, the link is part of why.
    bad = Status.FAIL if verdict.status is Status.FAIL else Status.WARN
    for link in verdict.links:
        if link.state is not LinkState.GOOD:
            findings.append(_link(link, bad, min_bandwidth_mb_s, checked, host))
            findings += [
                _blame(blame, bad, checked, min_bandwidth_mb_s, host)
                for blame in verdict.blames
                if blame.pair == link.pair
            ]
    findings += lane_findings(checked.counters, host)
    findings += [Finding("RK-LNK-009", Status.WARN, note, nodes=host) for note in _odd(checked)]
    return Report(
        "linkcheck",
        tuple(findings),
        _facts(checked, verdict, min_bandwidth_mb_s),
        started=time.time() if started is None else started,
        duration_s=duration_s,
        argv=tuple(argv),
    )


def unseen_report(
    error: NoLinkHardware, *, argv: Sequence[str] = (), started: float | None = None
) -> Report:
    """The report of a host where nothing could be measured: could not tell, and why."""
    host = socket.gethostname()
    finding = Finding(
        "RK-LNK-001",
        Status.UNKNOWN,
        f"could not tell: {error}",
        nodes=host,
        reasons=tuple(f"not found: {item}" for item in error.looked_for),
        advice=error.next_step,
    )
    return Report(
        "linkcheck",
        (finding,),
        {
            "verdict": {"node": Status.UNKNOWN.value, "links": [], "sockets": [], "boxes": []},
            "provider": "",
            "looked_for": list(error.looked_for),
        },
        started=time.time() if started is None else started,
        argv=tuple(argv),
    )


def _host(checked: Checked, verdict: NodeVerdict, bound: float, host: str) -> Finding:
    total = len(verdict.links)
    title = f"{verdict.good} of {total} links are good, and {verdict.min_channels} must be"
    advice = ""
    if verdict.status is Status.FAIL:
        title = f"only {title}"
        advice = "Take this host out of the job, and have its links repaired."
    elif verdict.status is Status.UNKNOWN:
        title = f"could not tell: {title}, but some gave no figure"
        advice = "Run the tool by hand, as named below, and see what it prints."
    elif verdict.good < total:
        title = f"{title}: the host passes, with {total - verdict.good} to be repaired"
    evidence = tuple(
        _figure(f"link {link.pair}", m, bound)
        for link in verdict.links
        if link.state is LinkState.GOOD
        for m in (link.there, link.back)
    )
    return Finding(
        "RK-LNK-002", verdict.status, title, nodes=host, evidence=evidence, advice=advice
    )


def _link(link: LinkVerdict, bad: Status, bound: float, checked: Checked, host: str) -> Finding:
    words = {
        LinkState.SLOW: "is slow",
        LinkState.LOST: "is lost",
        LinkState.UNKNOWN: "could not be measured",
    }
    title = f"link {_named(link.pair.sockets, checked.inventory)} {words[link.state]}"
    reasons = [
        f"{m.source} -> {m.target}: {m.failure}{f' ({m.detail})' if m.detail else ''}"
        for m in (link.there, link.back)
        if m.failure is not Failure.NONE
    ]
    slow = [m for m in (link.there, link.back) if m.failure is Failure.NONE]
    is_one_way = len(slow) == 2 and (slow[0].bandwidth_mb_s >= bound) != (
        slow[1].bandwidth_mb_s >= bound
    )
    if link.state is LinkState.SLOW and is_one_way:
        reasons.append("slow one way only; a check of the other direction alone would miss it")
    if link.state is LinkState.SLOW and checked.is_concurrent:
        reasons.append("all links were measured at one time, and may have slowed each other")
    return Finding(
        _LINK_IDS[link.state],
        bad if link.state.is_bad else Status.WARN,
        title,
        nodes=host,
        reasons=tuple(reasons),
        evidence=tuple(_figure("bandwidth", m, bound) for m in slow),
    )


def _blame(blame: Blame, status: Status, checked: Checked, bound: float, host: str) -> Finding:
    names = _named(blame.sockets, checked.inventory)
    if blame.place is FaultPlace.SOCKET:
        way = "" if blame.way is Way.BOTH else f" ({blame.way})"
        title = f"socket {names} is at fault{way}: its GPU, its cable, or the socket of the box"
    elif blame.place is FaultPlace.BOX:
        title = f"the box between sockets {names} is at fault"
    else:
        title = f"which end of {names} is at fault cannot be told"
    crosses = [m for m in checked.crosses if {m.source, m.target} & set(blame.sockets)]
    return Finding(
        _BLAME_IDS[blame.place],
        status if blame.place is not FaultPlace.INCONCLUSIVE else Status.WARN,
        title,
        nodes=host,
        reasons=blame.reasons,
        evidence=tuple(_figure("second pairing", m, bound) for m in crosses),
        advice=_BLAME_ADVICE[blame.place],
    )


def _figure(name: str, m: Measurement, bound: float) -> Evidence:
    label = f"{name}, {m.source} -> {m.target}"
    if m.failure is not Failure.NONE:
        return Evidence(label, m.failure.value, how=m.how)
    how = f"{m.how}; {m.detail}" if m.detail else m.how
    return Evidence(label, round(m.bandwidth_mb_s, 2), "MB/s", bound, how)


def _named(sockets: Sequence[int], inventory: Inventory) -> str:
    """`2 (GPU 1) - 4 (GPU 3)`."""
    gpus = [inventory.gpu_of.get(end) for end in sockets]
    return " - ".join(
        f"{end} (no GPU)" if gpu is None else f"{end} (GPU {gpu})"
        for end, gpu in zip(sockets, gpus, strict=True)
    )


def _odd(checked: Checked) -> list[str]:
    tested = {end for pair in checked.pairs for end in pair.sockets}
    unused = [
        f"socket {end} is claimed by GPUs {', '.join(map(str, gpus))} in the layout"
        for end, gpus in sorted(checked.inventory.claims.items())
        if end not in tested
    ]
    return [*checked.inventory.notes, *unused]


def _facts(checked: Checked, verdict: NodeVerdict, bound: float) -> dict[str, Any]:
    blames = verdict.blames
    sockets = {end for b in blames if b.place is FaultPlace.SOCKET for end in b.sockets}
    return {
        "verdict": {
            "node": verdict.status.value,
            "links": [list(v.pair.sockets) for v in verdict.links if v.state.is_bad],
            "sockets": sorted(sockets),
            "boxes": [list(b.sockets) for b in blames if b.place is FaultPlace.BOX],
        },
        "provider": checked.provider,
        "concurrent": checked.is_concurrent,
        "min_bandwidth_gbps": round(bound * 8 / 1000, 6),
        "min_bandwidth_mb_s": bound,
        "channels": {
            "good": verdict.good,
            "total": len(verdict.links),
            "minimum": verdict.min_channels,
        },
        "pairs": [list(pair.sockets) for pair in checked.pairs],
        "states": {str(link.pair): link.state.value for link in verdict.links},
        "sockets": {str(end): gpu for end, gpu in sorted(checked.inventory.gpu_of.items())},
        "claims": {str(end): list(gpus) for end, gpus in checked.inventory.claims.items()},
        "measurements": [_row(m) for m in (*checked.measurements, *checked.crosses)],
    }


def _row(m: Measurement) -> dict[str, Any]:
    return {
        "source": m.source,
        "target": m.target,
        "bandwidth_mb_s": m.bandwidth_mb_s,
        "failure": m.failure.value,
        "detail": m.detail,
        "how": m.how,
    }


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
