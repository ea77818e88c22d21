"""What came of the replicas, in one finding."""

from __future__ import annotations

from relkit.findings import Status
from relkit.flash_checkpoint.replicas.origin import Origin
from relkit.launch.replicas.resume_report import resume_report


def test_a_step_that_was_brought_and_why_none_was() -> None:
    brought = resume_report(
        Origin(41, "from replicas on h1 (rank 1)"), argv=("relkit", "launch"), started=5.0
    )
    (finding,) = brought.findings
    assert (finding.id, finding.status) == ("RK-FLASH-006", Status.OK)
    assert finding.title == "the job resumes from step 41 from replicas on h1 (rank 1)"
    assert (brought.command, brought.argv, brought.started) == ("launch", ("relkit", "launch"), 5.0)
    assert brought.facts["step"] == 41
    # Step 0 is a step.
    assert resume_report(Origin(0, "w"), argv=(), started=0.0).findings[0].id == "RK-FLASH-006"
    none = resume_report(Origin(why_not="h1 does not answer"), argv=(), started=0.0)
    (finding,) = none.findings
    assert (finding.id, finding.status) == ("RK-FLASH-007", Status.WARN)
    assert finding.title == "replicas are not used"
    assert finding.reasons == ("h1 does not answer",)
    assert "newest checkpoint on disk" in finding.advice
