"""A run with restarts as one self-contained page: how it went, and where the time of each went."""

from __future__ import annotations

from relkit.accounting.report import HEADER, rows_of
from relkit.findings import Report, Status
from relkit.reports.html import environment, headline, page_time, style_and_policy


def render(report: Report) -> str:
    """The whole page as text.

    Args:
        report: findings and facts; `job_id` and `recoveries` are shown where they are there.
    """
    faults = [f for f in report.findings if f.status in (Status.FAIL, Status.UNKNOWN)]
    first = [*faults, *report.findings][:1]
    return (
        environment()
        .get_template("recovery.html.j2")
        .render(
            report=report,
            headline=headline(report, ()),
            first=first[0] if first else None,
            rest=[f for f in report.findings if f not in first],
            job_id=str(report.facts.get("job_id") or ""),
            columns=HEADER,
            rows=rows_of(report.facts) if "recoveries" in report.facts else (),
            evidence=[(finding, item) for finding in report.findings for item in finding.evidence],
            started=page_time(report.started),
            version=report.to_json()["meta"]["version"],
            **style_and_policy("report.css"),
        )
    )
