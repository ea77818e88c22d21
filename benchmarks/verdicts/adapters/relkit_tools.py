"""relkit: its two commands that read what a job left."""

from __future__ import annotations

from pathlib import Path

from benchmarks.verdicts.adapters.model import Said
from relkit.errors import RelkitError
from relkit.flight_recorder.analyze import analyze, find_sources
from relkit.why.explain import explain


class Why:
    """`relkit why FOLDER`: `culprits` and `cause` of its JSON."""

    name = "relkit why"
    tells_cause = True
    names_ranks = True

    def reads(self, evidence: frozenset[str]) -> bool:
        """Everything."""
        return bool(evidence)

    def judge(self, folder: Path) -> Said:
        """Its answer."""
        report = explain([folder])
        title = report.findings[0].title if report.findings else ""
        return Said(report.facts["culprits"], str(report.facts["cause"]), title)


class HangAnalyze:
    """`relkit hang analyze FOLDER`: `culprits` of its JSON."""

    name = "relkit hang analyze"
    tells_cause = False
    names_ranks = True

    def reads(self, evidence: frozenset[str]) -> bool:
        """Dumps and stacks; of logs what stands beside them."""
        return bool(evidence & {"dumps", "stacks"})

    def judge(self, folder: Path) -> Said:
        """Its answer; none where it ends with an error of its own."""
        try:
            report = analyze(*find_sources([folder]))
        except RelkitError as error:
            return Said((), "", str(error))
        return Said(report.facts["culprits"], "", report.findings[0].title)
