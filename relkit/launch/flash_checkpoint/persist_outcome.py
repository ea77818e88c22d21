"""What came of persisting a job's slots: one line, and a report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from relkit.findings import Evidence, Finding, Report, Status
from relkit.launch.flash_checkpoint.persist_plan import Verdict
from relkit.log_lines import warning


@dataclass(frozen=True, slots=True)
class PersistOutcome:
    """Which step is kept, where, and why that one.

    Args:
        verdict: PERSIST: it was written now; NOTHING: it was not, `step` was on disk before.
        step: that a restarted job finds; -1 where there is none.
        where: file or folder of that step; "" where there is none.
        reason: why this step, or why nothing was written.
        trigger: what happened to the job.
        world_size: ranks of the job.
        size_bytes: written; duration_s: that it took, s.
        next_step: what to do where it failed.
    """

    verdict: Verdict
    step: int
    where: str
    reason: str
    trigger: str
    world_size: int
    size_bytes: int = 0
    duration_s: float = 0.0
    next_step: str = ""

    @property
    def line(self) -> str:
        """For the person at the terminal."""
        if self.verdict is Verdict.NOTHING:
            kept = (
                "nothing is on disk"
                if self.step < 0
                else f"step {self.step} stays, in {self.where}"
            )
            advice = f" {self.next_step}" if self.next_step else ""
            line = f"flash checkpoint: nothing was persisted: {self.reason}; {kept}.{advice}"
            # Where the step was on disk before, nothing had to be.
            return warning(line) if self.step < 0 or self.next_step else line
        return (
            f"flash checkpoint: step {self.step} is kept in {self.where}: {self.reason}"
            f" ({self.trigger})"
        )


def persist_report(
    outcome: PersistOutcome, *, job_id: str, argv: Sequence[str], started: float
) -> Report:
    """One finding: kept, or not.

    Args:
        job_id: the launcher's; argv: relkit's command line.
        started: when it began, Unix time.
    """
    evidence = [
        Evidence("ranks", outcome.world_size),
        Evidence("duration", round(outcome.duration_s, 3), "s"),
    ]
    if outcome.size_bytes:
        evidence.append(Evidence("size", outcome.size_bytes, "B"))
    if outcome.verdict is not Verdict.NOTHING:
        finding = Finding(
            "RK-FLASH-001",
            Status.WARN,
            f"step {outcome.step} is kept in {outcome.where}",
            reasons=(outcome.reason, outcome.trigger),
            evidence=tuple(evidence),
            advice="Start the job again: load_checkpoint() finds it.",
        )
    else:
        kept = f"step {outcome.step} in {outcome.where}" if outcome.step >= 0 else "nothing"
        finding = Finding(
            "RK-FLASH-002",
            Status.FAIL,
            f"nothing was persisted: {outcome.reason}",
            reasons=(outcome.trigger,),
            evidence=(*evidence, Evidence("on disk before", kept)),
            advice=outcome.next_step or "Save to disk more often; see docs/flash-checkpoint.md.",
        )
    return Report(
        command="flash",
        findings=(finding,),
        facts={
            "job_id": job_id,
            "verdict": outcome.verdict.value,
            "step": outcome.step,
            "where": outcome.where,
            "world_size": outcome.world_size,
        },
        argv=tuple(argv),
        started=started,
        duration_s=outcome.duration_s,
    )
