"""Which source said what of which rank, in the report of a hang of a running job."""

from __future__ import annotations

from dataclasses import replace

from relkit.findings import Finding, Report, Status
from relkit.hang.model import HOOK, Culprit, HangVerdict, JobView, RankView
from relkit.hang.words import of_ranks
from relkit.ranks import RankSet

DISPUTED = "RK-HANG-017"
# As where a dump and a log contradict each other.
DISPUTED_SCORE = 0.8
_MAX_REASONS = 8


def by_live_sources(verdict: HangVerdict, job: JobView) -> HangVerdict:
    """The verdict with what was said of the culprits, and with the certainty it allows."""
    views = {view.rank: view for view in job.ranks}
    is_disputed = any(view.sources.disputes for view in job.ranks)
    culprits = tuple(_by_sources(c, views.get(c.rank), is_disputed) for c in verdict.culprits)
    return replace(verdict, culprits=culprits)


def _by_sources(culprit: Culprit, view: RankView | None, is_disputed: bool) -> Culprit:
    sources = view.sources if view is not None else None
    reasons = list(culprit.reasons)
    if sources is not None:
        reasons += [f"{source}: {words}" for source, words in sources.said.items() if words]
        reasons += sources.disputes
    score = round(culprit.score * DISPUTED_SCORE, 2) if is_disputed else culprit.score
    return replace(culprit, reasons=tuple(dict.fromkeys(reasons)), score=score)


def with_live_sources(report: Report, job: JobView) -> Report:
    """The report with a finding and facts on its sources; as it is where the hook said it all."""
    spoken: dict[str, dict[str, str]] = {}
    for view in job.ranks:
        for source, words in view.sources.said.items():
            spoken.setdefault(source, {})[str(view.rank)] = words
    disputed = [view for view in job.ranks if view.sources.disputes]
    if not spoken and not disputed:
        return report
    facts = {
        "operations": {
            source: RankSet.of(v.rank for v in job.ranks if v.sources.state == source).fold()
            for source in [HOOK, *spoken]
        },
        "said": spoken,
        "disputes": {str(view.rank): list(view.sources.disputes) for view in disputed},
    }
    findings = (*report.findings, _disputed(disputed)) if disputed else report.findings
    return replace(report, findings=findings, facts={**report.facts, "sources": facts})


def _disputed(views: list[RankView]) -> Finding:
    ranks = RankSet.of(view.rank for view in views)
    reasons = [f"rank {view.rank}: {each}" for view in views for each in view.sources.disputes]
    rest = len(reasons) - _MAX_REASONS
    return Finding(
        id=DISPUTED,
        status=Status.WARN,
        title=f"the sources contradict each other about {of_ranks(ranks)}",
        ranks=ranks.fold(),
        reasons=(*reasons[:_MAX_REASONS], *([f"and {rest} more"] if rest > 0 else [])),
        advice="Look at the stacks of these ranks: the source that agrees with them is right. Run "
        "`relkit doctor` in the job's environment, which shows what the hook can see there.",
    )
