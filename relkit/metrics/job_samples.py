"""Samples from what a launcher knows of its job: restarts, hangs, stragglers, network checks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from relkit.accounting.account import Account, account_of
from relkit.accounting.progress import rate_holds_s
from relkit.accounting.records import Record, What
from relkit.findings import Report, Status
from relkit.metrics import table
from relkit.metrics.model import Sample
from relkit.straggler.history_types import Standing
from relkit.straggler.model import Subject

# A rank stands out from there on: evidence as a share of what a verdict needs.
_STANDS_OUT = 0.3
_OTHER = "other causes"


@dataclass(frozen=True, slots=True)
class Incidents:
    """The incidents of a run so far.

    Args:
        counts: by kind; at_unix_s: the newest of each.
        culprits: ranks that hold the job up, of the newest hang.
    """

    counts: Mapping[str, int] = field(default_factory=dict)
    at_unix_s: Mapping[str, float] = field(default_factory=dict)
    culprits: tuple[int, ...] = ()


def of_accounts(records: Sequence[Record]) -> Iterator[Sample]:
    """Restarts, ETTR and suspicions, from a journal that has begun.

    Args:
        records: of the journal, with the newest step and that the launcher lives.
    """
    if not records:
        return
    account = account_of(records)
    yield table.JOB_SECONDS.of(account.wall_s)
    if account.ettr is not None:
        yield table.ETTR.of(account.ettr)
    newest = account.attempts[-1].last if account.attempts else None
    if newest is not None:
        yield table.STEP.of(newest.number)
    yield from _restarts(account)
    if account.steps_lost is not None:
        yield table.STEPS_LOST.of(account.steps_lost)
    totals_s = [each.total_s for each in account.recoveries if each.total_s is not None]
    if totals_s:
        yield table.RECOVERY.of(totals_s[-1])
    suspicions = account.suspicions
    yield table.SUSPICIONS.of(suspicions.went_on, "went on")
    yield table.SUSPICIONS.of(suspicions.became_verdicts, "verdict")
    undecided = suspicions.began - suspicions.went_on - suspicions.became_verdicts
    yield table.SUSPICIONS.of(max(0, undecided), "not decided")
    for rank in suspects(records):
        yield table.SUSPECT_RANK.of(1, rank)


def _restarts(account: Account) -> Iterator[Sample]:
    """All causes are counted, and only so many of them have a series."""
    most = table.RESTARTS.max_series - 1
    causes = list(account.restarts.items())
    for cause, count in causes[:most]:
        yield table.RESTARTS.of(count, cause)
    if rest := sum(count for _, count in causes[most:]):
        yield table.RESTARTS.of(rest, _OTHER)


def suspects(records: Iterable[Record]) -> tuple[int, ...]:
    """Ranks (-1: not one rank) of suspicions that are not over."""
    present: dict[int, None] = {}
    for record in records:
        if record.what in (What.ATTEMPT, What.FAULT, What.ENDED):
            present.clear()
        elif record.what is What.SUSPICION and record.name == "began":
            present[record.number] = None
        elif record.what is What.SUSPICION and record.number in present:
            del present[record.number]
        elif record.what is What.SUSPICION:
            # It has come to be about other ranks since it began.
            present.clear()
    return tuple(present)


def of_hang(is_hung: bool, incidents: Incidents) -> Iterator[Sample]:
    """Whether the job hangs, and who holds it up; for the node that leads the watch."""
    yield table.HUNG.of(is_hung)
    if is_hung and incidents.culprits:
        yield table.HUNG_RANKS.of(len(incidents.culprits))
        for rank in incidents.culprits[: table.MAX_RANKS]:
            yield table.HUNG_RANK.of(1, rank)


def of_incidents(incidents: Incidents) -> Iterator[Sample]:
    """How many there were."""
    for kind, count in incidents.counts.items():
        yield table.INCIDENTS.of(count, kind)
        yield table.INCIDENT_AT.of(incidents.at_unix_s[kind], kind)


def of_stragglers(standing: Standing, now_unix_s: float) -> Iterator[Sample]:
    """Ranks that stand out, worst first, and verdicts that hold; the time of a step.

    Args:
        now_unix_s: steps that have ended long before say nothing of now.
    """
    # It comes with the history of the job, which a large job makes once in a minute or so.
    if now_unix_s - standing.step_unix_s < rate_holds_s(standing.step_s):
        yield table.STEP_SECONDS.of(standing.step_s)
        if standing.step_s > 0.0:
            yield table.STEPS_PER_SECOND.of(1.0 / standing.step_s)
    scores, evidence = np.asarray(standing.scores), np.asarray(standing.evidence)
    out = np.flatnonzero((evidence >= _STANDS_OUT) & np.isfinite(scores))
    accused = {raised.verdict.rank for raised in standing.verdicts} & set(range(len(scores)))
    worst = sorted(out.tolist(), key=lambda rank: (rank not in accused, -evidence[rank], rank))
    for rank in (*sorted(accused - set(worst)), *worst)[: table.MAX_RANKS]:
        if math.isfinite(scores[rank]):
            yield table.SLOWDOWN.of(scores[rank], rank, standing.hosts[rank])
        yield table.EVIDENCE.of(evidence[rank], rank, standing.hosts[rank])
    worst_first = sorted(standing.verdicts, key=lambda each: -each.verdict.cost_s)
    for raised in worst_first[: table.MAX_RANKS]:
        verdict = raised.verdict
        who = str(verdict.rank) if verdict.subject is Subject.RANK else " -> ".join(verdict.ends)
        yield table.STRAGGLER.of(verdict.cost_s, verdict.subject, who, verdict.cause)


def of_network_check(report: Report) -> Iterator[Sample]:
    """What the newest network check has found."""
    # Neither of both where it could not tell, or measured nothing.
    if report.status in (Status.OK, Status.WARN, Status.FAIL):
        yield table.NETCHECK_OK.of(report.status is not Status.FAIL)
    yield table.NETCHECK_AT.of(report.started + report.duration_s)
    counts: dict[str, int] = {}
    for finding in report.findings:
        counts[finding.status.value] = counts.get(finding.status.value, 0) + 1
    for status, count in counts.items():
        yield table.NETCHECK_FINDINGS.of(count, status)


def of_checkpoint(tier: str, step: int, age_s: float) -> Iterator[Sample]:
    """The newest checkpoint in memory, or on disk.

    Args:
        tier: where it is; step: that it is of; age_s: since it was saved.
    """
    yield table.CHECKPOINT_STEP.of(step, tier)
    yield table.CHECKPOINT_AGE.of(max(0.0, age_s), tier)
