"""Two real jobs, one of which hangs: relkit status, top and history of both."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.conftest import Start, Started, until
from tests.cluster.jobs import watched_job

pytestmark = pytest.mark.job
HANGS_AT = 12


def launched(
    start: Start, folder: Path, job_id: str, *more: str, hang_timeout_s: float = 300
) -> Started:
    folder.mkdir()
    # On a busy machine somebody is slow, and starts slowly, which is not what is looked at here.
    return start(
        "launch", "--nproc-per-node", "2", "--straggler", "off",
        "--hang-timeout", str(hang_timeout_s),
        "--on-hang", "report",
        "--rdzv-id", job_id, "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0",
        "--timeline-path", folder / "t", Path(watched_job.__file__), folder, *more,
    )  # fmt: skip


def asked(start: Start, *words: str, code: int = 0) -> dict[str, Any]:
    done = start(*words, "--json").wait()
    assert done.code == code, done.err
    plain: dict[str, Any] = json.loads(done.out)
    return plain


@pytest.mark.long
def test_what_runs_and_what_hangs_is_seen_and_kept(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    well, hung = f"well-{os.getpid()}", f"hung-{os.getpid()}"
    first = launched(start, tmp_path / "well", well)
    second = launched(start, tmp_path / "hung", hung, str(HANGS_AT), hang_timeout_s=15)
    second.wait_for("RK-HANG-", 90)
    first.wait_for("hang timeout")

    rows: dict[str, Any] = {}

    def look() -> bool:
        rows.update({row["job_id"]: row for row in asked(start, "status")["jobs"]})
        # On a busy machine the first save may last for longer than the limit as well.
        hangs = rows[hung]["health"] == "hung" and rows[hung]["step"] == HANGS_AT
        return bool(rows[well]["rate_per_s"] and hangs)

    until(look, first, second, timeout_s=60)

    # How both do.
    live = rows[well]
    assert (live["state"], live["health"], live["ranks"], live["attempt"]) == (
        "running", "ok", 2, 0,
    )  # fmt: skip
    assert 0.0 < live["rate_per_s"] <= 1.1 / watched_job.STEP_S
    assert live["eta_s"] == pytest.approx(
        (watched_job.TOTAL - live["step"]) / live["rate_per_s"], rel=0.05
    )
    assert {each["where"] for each in live["saved"]} == {"memory", "disk"}
    assert (live["restarts"], live["last_finding"], live["slow"]) == (0, "", [])
    stuck = rows[hung]
    assert (stuck["state"], stuck["step"], stuck["rate_per_s"]) == ("running", HANGS_AT, None)
    assert stuck["last_finding"].startswith("RK-HANG-008 rank 1 ")
    assert stuck["timeline"] == str(tmp_path / "hung" / "t")

    # A pipe gets lines, of one job or of all.
    lines = start("top").wait().out
    assert {well, hung} <= {line.split()[0] for line in lines.splitlines()[1:]}
    one = start("top", hung).wait()
    assert one.code == 0
    header, row, empty, restarts, *_ = one.out.splitlines()
    assert (header.split()[:2], row.split()[:2], empty) == (["JOB", "HEALTH"], [hung, "hung"], "")
    assert restarts.split()[0] == "RESTART"
    assert asked(start, "status", well)["live"]["health"] == "ok"

    # One page of what is known of a job.
    page = tmp_path / "page.html"
    made = start("page", hung, "-o", page).wait()
    assert made.code == 0, made.err
    text = page.read_text()
    assert "The job hangs" in text
    assert 'id="happened"' in text
    assert "RK-HANG-008" in text

    # Both end, and stay in the history.
    (tmp_path / "well" / "end").touch()
    assert first.wait(60).code == 0
    second.process.send_signal(signal.SIGTERM)
    second.wait(60)
    kept = asked(start, "history")
    assert [(node["times"], node["alone"]) for node in kept["nodes"]] == [(1, 1)]
    by_job = {
        job: [event["what"] for event in kept["events"] if event["job"] == job]
        for job in (well, hung)
    }
    assert by_job[well] == ["start", "end"]
    assert by_job[hung][0] == "start"
    assert {"verdict", "end"} <= set(by_job[hung])
    verdict = next(event for event in kept["events"] if event["what"] == "verdict")
    assert (verdict["finding"], verdict["ranks"], verdict["of_nodes"]) == ("RK-HANG-008", "1", 1)
    assert [event["what"] for event in asked(start, "history", "--job", well)["events"]] == (
        by_job[well]
    )
    table = list(csv.DictReader(io.StringIO(start("history", "--csv").wait().out)))
    assert {row["job"] for row in table} == {well, hung}
    assert asked(start, "status", well)["live"]["health"] == "succeeded"
