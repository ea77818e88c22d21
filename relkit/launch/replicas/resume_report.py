"""What the launchers' replicas gave the ranks of a host that was lost, as a Report."""

from __future__ import annotations

from dataclasses import asdict

from relkit.findings import Finding, Report, Status
from relkit.flash_checkpoint.replicas.origin import Origin


def resume_report(origin: Origin, *, argv: tuple[str, ...], started: float) -> Report:
    """A report of one finding.

    Args:
        origin: what came of the replicas; argv, started: of the launcher.
    """
    if origin.step >= 0:
        finding = Finding(
            "RK-FLASH-006",
            Status.OK,
            f"the job resumes from step {origin.step} {origin.words}",
        )
    else:
        finding = Finding(
            "RK-FLASH-007",
            Status.WARN,
            "replicas are not used",
            reasons=(origin.why_not,),
            advice="The job resumes from the newest checkpoint on disk.",
        )
    return Report("launch", (finding,), asdict(origin), started=started, argv=argv)
