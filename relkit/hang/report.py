"""Verdict -> Report: findings with who, where, why, and what to do next."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ClusterShell.NodeSet import NodeSet, NodeSetException

from relkit.findings import Evidence, Finding, Report, Status
from relkit.hang.advice import ENTRIES, NO_STACK, advice_for
from relkit.hang.death_cause import (
    OOM_ADVICE,
    RAISED_ADVICE,
    alike_finding,
    findings_of,
    hardware_findings,
    outside_finding,
)
from relkit.hang.deaths import (
    BY_LAUNCHER,
    collateral,
    died,
    ended_from_outside,
    oom_killed,
    raised_before_abort,
)
from relkit.hang.finding_builder import cpu_share, idle_s
from relkit.hang.frames import printable
from relkit.hang.model import Category, Culprit, HangVerdict, JobView, RankView
from relkit.hang.rank_table import oldest_in_flight, rank_rows
from relkit.hang.words import of_ranks, operation, where
from relkit.hook.stored_state import state_text
from relkit.ranks import RankSet

_DURATION = re.compile(r" for \d+\.\d s")
_MAX_VICTIMS = 2
# Operations that are kept of all these ranks together, and of one of them.
ALL_OPS = 16_384
MIN_OPS = 4
MAX_OPS = 64


def fold_hosts(hosts: Iterable[str]) -> str:
    """`node[1-4,7]`; a plain list where the names cannot be folded."""
    names = sorted({printable(host) for host in hosts if host})
    try:
        return str(NodeSet.fromlist(names))
    except NodeSetException:
        return ",".join(names)


def hang_report(
    job: JobView,
    verdict: HangVerdict,
    *,
    argv: Sequence[str] = (),
    started: float | None = None,
    duration_s: float = 0.0,
) -> Report:
    """The report of one hang, or of one failed job.

    Args:
        job: what was looked at; verdict: what attribute() made of it.
        argv: the command line that ran the job.
        started: Unix time when the look began, s; now where left out.
        duration_s: from the first sign to this report, s.
    """
    views = {view.rank: view for view in job.ranks}
    findings = [_finding(group, job, verdict, views) for group in _alike(verdict.culprits)]
    if not findings:
        findings = [_without_culprit(job, verdict)]
    named = dict.fromkeys(culprit.rank for culprit in verdict.culprits)
    findings += findings_of(views[rank] for rank in named if rank in views)
    findings += hardware_findings(job.ranks)
    findings += _unread(job)
    return Report(
        command="hang",
        findings=tuple(findings),
        facts=_facts(job, verdict),
        started=time.time() if started is None else started,
        duration_s=duration_s,
        argv=tuple(argv),
    )


def headline(verdict: HangVerdict) -> str:
    """The verdict in one line: the first culprit and who waits for it; for logs and titles."""
    network = [verdict.network] if verdict.network else []
    if not verdict.culprits:
        return "; ".join([verdict.inconclusive or "no rank is at fault", *network])
    title = _title(_alike(verdict.culprits)[0])
    rest = len({c.rank for c in verdict.culprits}) - len(_alike(verdict.culprits)[0])
    more = f" (and {rest} more)" if rest > 0 else ""
    return "; ".join([title + more, *_victim_parts(verdict), *network])


def _victim_parts(verdict: HangVerdict) -> list[str]:
    parts = [
        f"{of_ranks(RankSet.unfold(v.ranks))} {v.sentence}" for v in verdict.victims[:_MAX_VICTIMS]
    ]
    others = sum(len(RankSet.unfold(v.ranks)) for v in verdict.victims[_MAX_VICTIMS:])
    if others:
        parts.append(f"{others} more {'rank is' if others == 1 else 'ranks are'} elsewhere")
    return parts


def _alike(culprits: Sequence[Culprit]) -> list[list[Culprit]]:
    """Culprits that did the same thing go into one finding, in the order of the verdict."""
    groups: dict[tuple[Category, str], list[Culprit]] = {}
    for culprit in culprits:
        key = (culprit.category, _DURATION.sub("", culprit.sentence))
        groups.setdefault(key, []).append(culprit)
    return list(groups.values())


def _title(group: Sequence[Culprit]) -> str:
    first = group[0]
    ranks = RankSet.of(c.rank for c in group)
    place = where(first.host, first.pid)
    if len(group) > 1:
        place = where(fold_hosts(c.host for c in group), 0)
    return f"{of_ranks(ranks)}{place}: {first.sentence}"


def _finding(
    group: Sequence[Culprit], job: JobView, verdict: HangVerdict, views: Mapping[int, RankView]
) -> Finding:
    first = group[0]
    view = views.get(first.rank)
    return Finding(
        id=ENTRIES[first.category].id,
        status=Status.WARN if verdict.is_over else Status.FAIL,
        title="; ".join([_title(group), *_victim_parts(verdict)]),
        ranks=RankSet.of(c.rank for c in group).fold(),
        nodes=fold_hosts(c.host for c in group),
        reasons=(*first.reasons, *_suspected(job, group)),
        evidence=(*_evidence_of(view), *_longest_wait(job, verdict)),
        advice=_advice(group, view, job),
    )


def _advice(group: Sequence[Culprit], view: RankView | None, job: JobView) -> str:
    culprit = group[0]
    if view is not None and oom_killed(view):
        return OOM_ADVICE
    if view is not None and raised_before_abort(view):
        return RAISED_ADVICE
    return advice_for(
        culprit.category,
        view.exit_code if view else None,
        culprit.pid,
        has_stacks=job.has_stacks or (view is not None and view.dump is not None),
        others_follow=_others_follow(job, {each.rank for each in group}),
    )


def _others_follow(job: JobView, named: Collection[int]) -> bool:
    """All other ranks that died are known to have died because of these."""
    others = [view for view in job.ranks if died(view) and view.rank not in named]
    return bool(others) and all(
        collateral(v) or (v.exit_code in BY_LAUNCHER and not oom_killed(v)) for v in others
    )


def _suspected(job: JobView, group: Sequence[Culprit]) -> list[str]:
    """What these ranks were suspected of."""
    ranks = RankSet.of(culprit.rank for culprit in group)
    return [
        f"suspected before this verdict: {each.sentence}"
        for each in job.suspicions
        if each.ranks & ranks
    ]


def _evidence_of(view: RankView | None) -> tuple[Evidence, ...]:
    if view is None:
        return ()
    evidence = []
    if view.alive and view.process_state:
        evidence.append(Evidence("process state", view.process_state[:1], how="/proc/PID/stat"))
    idle, share = idle_s(view), cpu_share(view)
    if view.alive and idle is not None:
        evidence.append(Evidence("since its last operation", round(idle, 1), "s", how="recorder"))
    if share is not None:
        percent = round(100 * share, 1)
        evidence.append(Evidence("CPU used", percent, "% of a core", how="/proc/PID/stat, twice"))
    if not view.alive and view.exit_code is not None:
        evidence.append(Evidence("exit code", view.exit_code, how="launcher"))
    if view.hook is not None and view.hook.communicators:
        newest = max(communicator.seq for communicator in view.hook.communicators)
        if newest >= 0:
            evidence.append(Evidence("newest collective started", newest, how="recorder"))
    return tuple(evidence)


def _longest_wait(job: JobView, verdict: HangVerdict) -> tuple[Evidence, ...]:
    """The longest time that a rank other than the culprits has been in one operation."""
    culprits = {c.rank for c in verdict.culprits}
    longest: tuple[float, str] | None = None
    for view in job.ranks:
        flight = oldest_in_flight(view)
        if flight and view.alive and view.hook and view.rank not in culprits:
            candidate = (flight[1], f"rank {view.rank}: {operation(flight[0], view.hook)}")
            longest = max(longest or candidate, candidate)
    # Where the recorder has no later time than the operation's own, nothing is known.
    if longest is None or not round(longest[0], 1):
        return ()
    return (
        Evidence(
            "longest operation in flight",
            round(longest[0], 1),
            "s",
            job.hang_timeout_s or None,
            f"recorder, {longest[1]}",
        ),
    )


def _without_culprit(job: JobView, verdict: HangVerdict) -> Finding:
    number = ended_from_outside(job.ranks)
    if number is not None:
        return outside_finding(job.ranks, number)
    if verdict.all_alike:
        return alike_finding(job.ranks)
    return _inconclusive(job, verdict)


def _inconclusive(job: JobView, verdict: HangVerdict) -> Finding:
    entry = ENTRIES[Category.INCONCLUSIVE]
    return Finding(
        id=entry.id,
        status=Status.UNKNOWN,
        title="; ".join([verdict.inconclusive or "no rank is at fault", *_victim_parts(verdict)]),
        ranks="",
        nodes=fold_hosts(view.host for view in job.ranks),
        evidence=_longest_wait(job, verdict),
        advice=advice_for(Category.INCONCLUSIVE, has_stacks=job.has_stacks),
    )


def _unread(job: JobView) -> list[Finding]:
    """Live ranks whose stacks could not be read: missing data must never look healthy."""
    if not job.has_stacks:
        return []
    unread = [
        view
        for view in job.ranks
        if view.alive and (view.dump is None or not (view.dump.python or view.dump.native))
    ]
    if not unread:
        return []
    ranks = RankSet.of(view.rank for view in unread)
    notes = {note for view in unread if view.dump for note in view.dump.notes}
    return [
        Finding(
            id=NO_STACK.id,
            status=Status.WARN,
            title=f"the stack of {of_ranks(ranks)} could not be read",
            ranks=ranks.fold(),
            nodes=fold_hosts(view.host for view in unread),
            reasons=tuple(printable(note) for note in sorted(notes)[:3]),
            advice=NO_STACK.advice,
        )
    ]


def _facts(job: JobView, verdict: HangVerdict) -> dict[str, Any]:
    known = RankSet.of(view.rank for view in job.ranks if not view.absent_reason)
    return {
        "job_id": job.job_id,
        "trigger": job.trigger,
        "verdict": headline(verdict),
        "world_size": job.world_size,
        "hang_timeout_s": job.hang_timeout_s,
        "culprits": list(dict.fromkeys(c.rank for c in verdict.culprits)),
        "culprit_details": [
            {
                "rank": c.rank,
                "host": c.host,
                "pid": c.pid or None,
                "category": c.category.value,
                "sentence": c.sentence,
                "reasons": list(c.reasons),
                "score": c.score,
            }
            for c in verdict.culprits
        ],
        "victims": [{"ranks": v.ranks, "sentence": v.sentence} for v in verdict.victims],
        "ranks": rank_rows(job),
        "deaths": [
            {"rank": view.rank, "exit_code": view.exit_code, **asdict(view.death)}
            for view in job.ranks
            if view.death is not None and died(view)
        ],
        "suspicions": [
            {
                "ranks": each.ranks.fold(),
                "sentence": each.sentence,
                "manner": each.manner.value,
                "stalled_s": round(each.stalled_s, 1),
            }
            for each in job.suspicions
        ],
        "absent": (RankSet.world(job.world_size) - known).fold(),
        "recorders": kept_recorders(job),
    }


def kept_recorders(job: JobView) -> dict[str, str]:
    """By rank, the recorder's state as `hook_json` in a .stacktrace file has it.

    Args:
        job: where stacks were asked for; the dumps of its ranks hold their recorders themselves.
    """
    if not job.has_stacks:
        return {}
    states = {
        view.rank: view.hook
        for view in job.ranks
        if view.hook is not None and not (view.dump and view.dump.hook_json)
    }
    each = max(MIN_OPS, min(MAX_OPS, ALL_OPS // max(1, len(states))))
    return {str(rank): state_text(state, each) for rank, state in states.items()}
