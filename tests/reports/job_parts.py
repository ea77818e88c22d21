"""A job of which everything is kept, for its page: 8 ranks, or 1,024."""

from __future__ import annotations

from pathlib import Path

from relkit.accounting.read_journal import JournalRead
from relkit.accounting.records import What as Noted
from relkit.accounting.report import report_of
from relkit.findings import Evidence, Finding, Report, Status
from relkit.hang_picture.folder import HangEvidence
from relkit.history.model import Event, What
from relkit.job_page.parts import JobParts
from relkit.straggler.present.report import straggler_report
from tests.reports.straggler_jobs import job
from tests.reports.test_hang_page import page_parts
from tests.unit.accounting.stories import Story
from tests.unit.hang_picture.hang_folders import pipeline_job

LIVE = {
    "job_id": "night", "state": "succeeded", "health": "succeeded", "nodes": [0], "of_nodes": 1,
    "ranks": 8, "attempt": 2, "step": 4711, "step_age_s": 3.0, "steps_total": 10_000,
    "rate_per_s": 3.25, "eta_s": 1630.0, "slow": [], "restarts": 1, "last_finding": "",
    "saved": [{"where": "memory", "step": 4710, "age_s": 3.0},
              {"where": "disk", "step": 4500, "age_s": 300.0}],
    "timeline": "", "ettr": 0.64, "ettr_basis": "steps", "wall_s": 100.0, "begun_unix_s": 1e9,
}  # fmt: skip


def account(ranks: int) -> Report:
    story = Story("night").attempt(0, 10).fault("hang").attempt(8, 20, number=1)
    story.add(Noted.ENDED, 1.0, name="succeeded")
    report = report_of([JournalRead(tuple(story.records))], argv=(), started=1.7e9)
    live = LIVE | {"ranks": ranks, "of_nodes": max(1, ranks // 8)}
    return Report("status", report.findings, {**report.facts, "live": live}, started=1.7e9)


def whole(ranks: int) -> JobParts:
    """Everything, of so many ranks."""
    report, picture = page_parts(pipeline_job(ranks))
    history = job(ranks, 100)
    dead = Finding(
        "RK-NET-001", Status.FAIL, "node7 is dead", nodes="node7", reasons=("no edge answered",),
        evidence=(Evidence("failed measurements", "6 of 6"),), advice="Leave it out (-x).",
    )  # fmt: skip
    kept = Finding("RK-FLASH-001", Status.WARN, "step 4710 of all ranks is kept on disk")
    events = [
        Event(
            1.7e9 + i, what, "night", "r", "node0", f"{what}: " + "a longer sentence " * 6, "RK-X"
        )
        for i, what in enumerate([*What] * 12)
    ]
    return JobParts(
        "night",
        Path("/root/timeline"),
        account(ranks),
        HangEvidence(report, picture, None),
        history,
        {
            "straggler": straggler_report(history),
            "netcheck": Report("netcheck", (dead,) * 20),
            "flash": Report("flash", (kept,), {"step": 4710}),
        },
        tuple(events),
        ("ttp.json: it is no JSON",),
    )
