"""The document behind the page: `relkit.report/1`."""

from __future__ import annotations

from collections.abc import Sequence

from relkit.findings import Report
from relkit.hang_picture.folder import HangEvidence


def page_facts(
    evidence: HangEvidence, *, argv: Sequence[str], started: float, duration_s: float
) -> Report:
    """Verdict and picture as one report, for --json and the exit code.

    Args:
        evidence: what the folder says.
        argv, started, duration_s: of this command; those of the job's go into `hang`.
    """
    hang = evidence.report
    facts = {key: value for key, value in hang.facts.items() if key != "recorders"}
    return Report(
        command="report",
        findings=hang.findings,
        facts={
            **facts,
            **evidence.picture.to_json(),
            "hang_started": hang.started or None,
            "hang_argv": list(hang.argv),
        },
        started=started,
        duration_s=duration_s,
        argv=tuple(argv),
    )
