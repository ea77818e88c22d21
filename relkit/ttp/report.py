"""How a fault under try-to-persist ended, as a report."""

from __future__ import annotations

from collections.abc import Sequence

from relkit.findings import Evidence, Finding, Report, Status
from relkit.ranks import RankSet
from relkit.ttp.save_outcome import EXIT_REFUSED, EXIT_SAVED, SaveOutcome


def persist_report(
    outcome: SaveOutcome, *, job_id: str, argv: Sequence[str], started: float
) -> Report:
    """One finding: saved, refused, or failed.

    Args:
        outcome: of the controller.
        job_id: the launcher's.
        argv: relkit's command line.
        started: when the fault was met, Unix time.
    """
    evidence = [Evidence("from the fault to the end", round(outcome.duration_s, 3), "s")]
    if outcome.epochs:
        evidence.append(Evidence("plans made", outcome.epochs))
    lost = RankSet.of(outcome.dead).fold()
    reasons = (f"it began when {outcome.reason}",) if outcome.reason else ()
    if outcome.code == EXIT_SAVED:
        finding = Finding(
            "RK-TTP-001",
            Status.WARN,
            f"step {outcome.step} was saved by the survivors; no committed step is lost",
            ranks=lost,
            reasons=reasons,
            evidence=tuple(evidence),
            advice=f"Resume from {outcome.folder} (--load; --max-restarts does it by itself).",
        )
    elif outcome.code == EXIT_REFUSED:
        finding = Finding(
            "RK-TTP-002",
            Status.FAIL,
            f"nothing could be saved: {outcome.sentence}",
            ranks=lost,
            reasons=reasons,
            evidence=tuple(evidence),
            advice="Resume from the latest periodic checkpoint; it is untouched.",
        )
    else:
        finding = Finding(
            "RK-TTP-003",
            Status.FAIL,
            f"saving failed: {outcome.sentence}",
            ranks=lost,
            reasons=reasons,
            evidence=tuple(evidence),
            advice="Correct that, and resume from the latest checkpoint; it is untouched.",
        )
    return Report(
        command="ttp",
        findings=(finding,),
        facts={
            "job_id": job_id,
            "step": outcome.step,
            "folder": outcome.folder,
            "dead": list(outcome.dead),
            "code": outcome.code,
        },
        argv=tuple(argv),
        started=started,
        duration_s=outcome.duration_s,
    )
