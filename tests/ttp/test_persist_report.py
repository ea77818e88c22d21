"""How a fault under try-to-persist ended, in one finding."""

from __future__ import annotations

import pytest

from relkit.findings import Status
from relkit.ttp.report import persist_report
from relkit.ttp.save_outcome import EXIT_REFUSED, EXIT_SAVE_FAILED, EXIT_SAVED, SaveOutcome


@pytest.mark.parametrize(
    ("code", "finding_id", "status", "title"),
    [
        (EXIT_SAVED, "RK-TTP-001", Status.WARN, "step 7 was saved by the survivors; no committed"),
        (EXIT_REFUSED, "RK-TTP-002", Status.FAIL, "nothing could be saved: why"),
        (EXIT_SAVE_FAILED, "RK-TTP-003", Status.FAIL, "saving failed: why"),
    ],
)
def test_each_end_has_its_finding(code: int, finding_id: str, status: Status, title: str) -> None:
    outcome = SaveOutcome(code, "why", 7, "/ck/7", "rank 3 died", (3, 4), 2, 1.23456)
    report = persist_report(outcome, job_id="job", argv=["relkit", "launch"], started=9.0)
    (finding,) = report.findings
    assert (finding.id, finding.status, finding.ranks) == (finding_id, status, "3-4")
    assert finding.title.startswith(title)
    assert finding.reasons == ("it began when rank 3 died",)
    assert [(each.value, each.unit) for each in finding.evidence] == [(1.235, "s"), (2, "")]
    assert ("/ck/7" in finding.advice) is (code == EXIT_SAVED)
    assert ("untouched" in finding.advice) is (code != EXIT_SAVED)
    assert report.facts == {
        "job_id": "job", "step": 7, "folder": "/ck/7", "dead": [3, 4], "code": code
    }  # fmt: skip
    assert (report.command, report.argv) == ("ttp", ("relkit", "launch"))
    assert (report.started, report.duration_s) == (9.0, 1.23456)


def test_what_is_not_known_is_left_out() -> None:
    outcome = SaveOutcome(EXIT_REFUSED, "why")
    (finding,) = persist_report(outcome, job_id="", argv=(), started=0.0).findings
    assert (finding.reasons, len(finding.evidence), finding.ranks) == ((), 1, "")
