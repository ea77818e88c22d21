"""History -> Report: who makes the job slow, since when, why, how sure that is, what it cost."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from relkit.findings import Evidence, Finding, Report, Status
from relkit.hosts import fold
from relkit.ranks import RankSet
from relkit.straggler.history_types import History, RaisedVerdict
from relkit.straggler.model import Cause, Subject
from relkit.straggler.present.busy_hosts import BusyHost, busy_hosts
from relkit.straggler.present.metrics import (
    breakdown,
    last_step,
    main_part,
    share_lost,
    step_seconds,
)

IDS = {
    Cause.COMPUTE: "RK-STRAG-001",
    Cause.NETWORK: "RK-STRAG-002",
    Cause.INPUT: "RK-STRAG-003",
    Cause.HOST: "RK-STRAG-004",
    Cause.UNKNOWN: "RK-STRAG-011",
    Cause.NOISE: "RK-STRAG-007",
}
# Fewer steps than this are no ground to call a job even: the scorer itself warms up for eight.
_FEW_STEPS = 16
_SUSPECT = 0.5
_HOST = {
    "gc": "Call `gc.freeze()` after start-up and collect at the same step on all ranks "
    "(`gc.disable()`, then `gc.collect()` every few hundred steps); look for what makes objects.",
    "throttled": "Raise the container's CPU limit (`cpu.max` of its cgroup), or start fewer "
    "threads and loader workers.",
    "": "Look at what the host does outside of the job: `top`, `vmstat 1`, `dmesg`; "
    "`relkit stacks dump --job JOB` there shows where the rank spends its time.",
}
_BUSY = (
    "See what else runs on that host (`top`, `ps -eo psr,pcpu,cmd --sort=-pcpu`), whether ranks or "
    "loader workers share cores (`taskset -cp PID`), and OMP_NUM_THREADS."
)
_BY_CAUSE = {
    Cause.COMPUTE: "Look at clocks, temperature and power limit of its device (`nvidia-smi -q -d "
    "CLOCK,PERFORMANCE,TEMPERATURE`, or `turbostat`); `relkit straggler preflight` on that host "
    "and a good one says whether it is the device. If it is: leave the node out.",
    Cause.INPUT: "Look at the storage and the loader of that rank: more workers or prefetch, a "
    "larger or colder shard, a busy disk (`iostat -x 1`), a slow mount.",
    Cause.NOISE: "Nothing yet: no part of its step explains it.",
    Cause.UNKNOWN: "Trace some steps of all ranks with torch.profiler and name that folder: "
    "kernels say why. Or add columns compute, comm and input to the table.",
}
_NETWORK = {
    Subject.LINK: "Measure it alone with `relkit netcheck` on the two hosts and a good one; look "
    "at errors (`ethtool -S`, `ip -s link`), the cable, and the switch ports between them.",
    Subject.HOST: "Measure it with `relkit netcheck` on that host and good ones; look at errors "
    "(`ethtool -S`, `ip -s link`), negotiated speed, PCIe width, and other traffic on it.",
    Subject.RANK: "Measure its host with `relkit netcheck`; look at the interface or device that "
    "this rank uses (NCCL_SOCKET_IFNAME, NCCL_IB_HCA).",
}


def straggler_report(
    history: History,
    *,
    argv: Sequence[str] = (),
    started: float | None = None,
    duration_s: float = 0.0,
) -> Report:
    """The report of one job.

    Args:
        history: of a running or an ended job.
        argv, started, duration_s: see Report.
    """
    findings = [_accused(history, raised) for raised in history.verdicts]
    findings += _not_known(history)
    findings += _recovered(history)
    findings += _suspects(history)
    findings += [_busy(host) for host in busy_hosts(history)]
    if not history.verdicts and not any(f.status is Status.UNKNOWN for f in findings):
        findings.append(_even(history))
    if history.notes:
        findings.append(
            Finding(
                "RK-STRAG-009", Status.WARN, "not everything was seen", reasons=history.notes,
                advice="`relkit doctor` on the host says what the hook lacks there.",
            )
        )  # fmt: skip
    return Report(
        "straggler",
        tuple(findings),
        facts=facts_of(history),
        started=time.time() if started is None else started,
        duration_s=duration_s,
        argv=tuple(argv),
    )


def who(history: History, raised: RaisedVerdict) -> str:
    """Whom a verdict names: "rank 3 (node7)", "the link node2 → node3", "the host node2"."""
    verdict = raised.verdict
    if verdict.subject is Subject.RANK:
        host = host_of(history, verdict.rank)
        return f"rank {verdict.rank} ({host})" if host else f"rank {verdict.rank}"
    if verdict.subject is Subject.LINK:
        return "the link " + " → ".join(verdict.ends)
    what = "the network of " if verdict.cause is Cause.NETWORK else "the host "
    return what + ", ".join(verdict.ends)


def what(raised: RaisedVerdict, part: str = "") -> str:
    """What it does: "computes 12 % longer than its peers".

    Args:
        raised: the verdict; part: of a slow host, what takes the time, as main_part() has
            it.
    """
    verdict = raised.verdict
    now = raised.ended_step < 0
    if verdict.cause is Cause.NETWORK:
        verb = "takes" if now else "took"
        return f"{verb} {1.0 + max(verdict.score, 0.0):.3g} times as long as usual for a transfer"
    percent = f"{100.0 * verdict.score:.3g} %"
    if verdict.subject is Subject.HOST:
        return f"{'slows' if now else 'slowed'} its ranks down, by {percent} at most"
    if verdict.cause is Cause.COMPUTE:
        return f"{'computes' if now else 'computed'} {percent} longer than its peers"
    if verdict.cause is Cause.INPUT:
        return f"{'needs' if now else 'needed'} {percent} longer than its peers, waiting for input"
    if verdict.cause is Cause.HOST:
        reason = {
            "gc": "for garbage collection",
            "throttled": "stopped by its cgroup's CPU limit",
        }.get(part, "on its host, outside of compute and input")
        return f"{'needs' if now else 'needed'} {percent} longer than its peers, {reason}"
    slow = f"{'is' if now else 'was'} {percent} slower than its peers"
    return slow if verdict.cause is Cause.UNKNOWN else f"{slow}, and nothing explains it"


def seconds(value: float) -> str:
    """A time for people: "85 ms", "3.2 s", "12 min", "5.1 h"."""
    if not math.isfinite(value):
        return "?"
    for limit, factor, unit in ((0.0995, 1e3, "ms"), (99.5, 1.0, "s"), (5970.0, 1 / 60, "min")):
        if abs(value) < limit:
            return f"{value * factor:.3g} {unit}"
    return f"{value / 3600:,.3g} h" if abs(value) < 3.5e6 else f"{value / 3600:,.0f} h"


def host_of(history: History, rank: int) -> str:
    """The rank's host; "" for a rank that is not there."""
    return history.hosts[rank] if 0 <= rank < history.world_size else ""


def _cost(history: History, raised: RaisedVerdict) -> str:
    if raised.verdict.cost_s <= 0.0:
        return "it has cost the job no time so far"
    share = share_lost(history, raised)
    told = f", {100 * share:.2g} % of its time since then" if math.isfinite(share) else ""
    return f"it cost the job {seconds(raised.verdict.cost_s)}{told}"


def _accused(history: History, raised: RaisedVerdict) -> Finding:
    verdict = raised.verdict
    part = main_part(breakdown(history, verdict.rank), verdict.cause)
    ended = raised.ended_step >= 0
    since = f"from step {verdict.first_step:,} to {raised.ended_step:,}" if ended else (
        f"since step {verdict.first_step:,}"
    )  # fmt: skip
    named = verdict.ends or (
        (host_of(history, verdict.rank),) if verdict.subject is Subject.RANK else ()
    )
    measured = Evidence(
        "time of a transfer" if verdict.cause is Cause.NETWORK else "local time of a step",
        round(1.0 + verdict.score, 4), "x usual", how="hook, per step",
    )  # fmt: skip
    return Finding(
        id=IDS[verdict.cause],
        status=Status.WARN if ended or verdict.cause is Cause.NOISE else Status.FAIL,
        title=f"{who(history, raised)} {what(raised, part)} {since}; {_cost(history, raised)}",
        ranks=str(verdict.rank) if verdict.subject is Subject.RANK else "",
        nodes=fold([name for name in named if name]),
        reasons=verdict.reasons,
        evidence=(
            measured,
            Evidence("confidence", round(verdict.confidence, 3)),
            Evidence("said at step", raised.raised_step),
            Evidence("cost", round(verdict.cost_s, 3), "s"),
        ),
        advice="" if ended else advice(verdict.cause, verdict.subject, part),
    )


def _recovered(history: History) -> list[Finding]:
    """Dropped verdicts, one finding for all of a kind; the newest speaks for them."""
    kinds: dict[tuple[object, ...], list[RaisedVerdict]] = {}
    for raised in history.recovered:
        verdict = raised.verdict
        kinds.setdefault((verdict.subject, verdict.rank, verdict.ends, verdict.cause), []).append(
            raised
        )
    findings = []
    for newest, *earlier in kinds.values():
        finding = _accused(history, newest)
        if earlier:
            spent_s = sum(max(0.0, raised.verdict.cost_s) for raised in earlier)
            more = f"{len(earlier)} time{'s' if len(earlier) > 1 else ''}"
            before = f"the same was reported {more} before, {seconds(spent_s)} lost in all"
            finding = replace(finding, reasons=(*finding.reasons, before))
        findings.append(finding)
    return findings


def _not_known(history: History) -> list[Finding]:
    """Ranks of which nothing is known, and jobs too short to say anything."""
    seen = np.isfinite(history.local_s).sum(axis=1)
    findings = []
    silent = RankSet.of(int(rank) for rank in np.flatnonzero(seen == 0))
    if len(silent) == history.world_size:
        return [
            Finding(
                "RK-STRAG-010", Status.UNKNOWN, "could not tell: no step of any rank was seen",
                advice="A step begins where the sequence of collectives repeats, or where the "
                "script calls relkit.step(); `relkit doctor` says whether the hook works here.",
            )
        ]  # fmt: skip
    if silent:
        findings.append(
            Finding(
                "RK-STRAG-010", Status.UNKNOWN,
                f"nothing is known of {silent.in_words()}",
                ranks=silent.fold(),
                advice="Check that the hook works there (`relkit doctor`), and that relkit's "
                "launcher runs.",
            )
        )  # fmt: skip
    steps = int(np.median(seen[seen > 0]))
    if steps < _FEW_STEPS and not history.verdicts:
        findings.append(
            Finding(
                "RK-STRAG-010", Status.UNKNOWN,
                f"could not tell yet: {steps} steps were seen, and it takes {_FEW_STEPS}",
                advice="Wait for more steps.",
            )
        )  # fmt: skip
    return findings


def _suspects(history: History) -> list[Finding]:
    accused = {raised.verdict.rank for raised in history.verdicts}
    near = [
        int(rank)
        for rank in np.flatnonzero(np.nan_to_num(history.evidence) >= _SUSPECT)
        if int(rank) not in accused
    ]
    if not near:
        return []
    near.sort(key=lambda rank: -float(history.evidence[rank]))
    reasons = tuple(
        f"rank {rank} ({history.hosts[rank]}): {100 * float(history.scores[rank]):.3g} % longer "
        f"than its peers lately, {100 * min(1.0, float(history.evidence[rank])):.0f} % of the "
        "evidence that a verdict takes"
        for rank in near[:5]
    )
    ranks = RankSet.of(near)
    return [
        Finding(
            "RK-STRAG-006", Status.WARN,
            f"{ranks.in_words()} suspected; not enough evidence yet",
            ranks=ranks.fold(), reasons=reasons, advice="More steps will tell.",
        )
    ]  # fmt: skip


def _busy(host: BusyHost) -> Finding:
    """What is lost there is nobody's fault in the job."""
    load = host.load
    evidence = [Evidence("run-queue wait", round(host.wait, 4), "of the time", how="schedstat")]
    if load is not None:
        evidence += [
            Evidence("cores at work", round(load.busy_cores, 2), f"of {load.cores}"),
            Evidence("of these for other processes", round(load.other_cores, 2)),
        ]
    return Finding(
        "RK-STRAG-008", Status.WARN, host.sentence,
        ranks=host.ranks.fold(), nodes=host.host, evidence=tuple(evidence),
        advice=_BUSY,
    )  # fmt: skip


def _even(history: History) -> Finding:
    size, end = history.world_size, last_step(history)
    which = f"all {size:,} ranks take" if size > 1 else "the only rank takes"
    than = "as long as each other" if size > 1 else "as long as it did before"
    one_host = len(set(history.hosts)) == 1
    links = (
        "no link stands out"
        if history.links
        else ("all on one host" if one_host else "links were not measured")
    )
    return Finding(
        "RK-STRAG-005",
        Status.OK,
        f"{which} {than} up to step {end:,}; {links}",
        evidence=(Evidence("steps seen", end - history.first_step + 1),),
    )


def facts_of(history: History) -> dict[str, Any]:
    """What the JSON has of a job beside the findings."""
    steps = int(np.isfinite(history.local_s).any(axis=0).sum())
    mean_s = step_seconds(history)
    return {
        "job_id": history.job_id,
        "ended": history.ended,
        "world_size": history.world_size,
        "steps": steps,
        "first_step": history.first_step,
        "last_step": last_step(history),
        "step_s": round(mean_s, 6) if math.isfinite(mean_s) else None,
        "stragglers": [plain_verdict(history, raised) for raised in history.verdicts],
        "past_stragglers": [plain_verdict(history, raised) for raised in history.past],
        "links": [
            {"source": row.source, "target": row.target, "ratio": round(row.ratio, 4),
             "evidence": round(row.evidence, 4), "lost_s": round(row.lost_s, 4)}
            for row in history.links
        ],
        "clock_offsets": {
            host: {"offset_s": offset_s, "sigma_s": sigma_s}
            for host, (offset_s, sigma_s) in history.clock_offsets.items()
        },
        "settings": dict(history.settings),
        "notes": list(history.notes),
    }  # fmt: skip


def plain_verdict(history: History, raised: RaisedVerdict) -> dict[str, Any]:
    """A verdict as JSON."""
    verdict = raised.verdict
    share = share_lost(history, raised)
    return {
        "rank": verdict.rank if verdict.subject is Subject.RANK else None,
        "cause": verdict.cause.value,
        "score": round(verdict.score, 4),
        "confidence": round(verdict.confidence, 4),
        "first_step": verdict.first_step,
        "subject": verdict.subject.value,
        "host": host_of(history, verdict.rank) if verdict.subject is Subject.RANK else "",
        "ends": list(verdict.ends),
        "cost_s": round(verdict.cost_s, 3),
        "cost_share": round(share, 4) if math.isfinite(share) else None,
        "raised_step": raised.raised_step,
        "ended_step": raised.ended_step if raised.ended_step >= 0 else None,
        "who": who(history, raised),
        "reasons": list(verdict.reasons),
    }


def advice(cause: Cause, subject: Subject, part: str = "") -> str:
    """What to do next.

    Args:
        cause, subject: of the verdict.
        part: of a slow host what takes the time: gc, throttled, or "".
    """
    if cause is Cause.NETWORK:
        return _NETWORK[subject]
    return _HOST.get(part, _HOST[""]) if cause is Cause.HOST else _BY_CAUSE[cause]
