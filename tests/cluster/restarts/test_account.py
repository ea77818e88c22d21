"""`relkit launch` and `relkit status`: a job that is restarted twice, and where its time went."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from relkit.accounting.account import PHASES
from tests.cluster.conftest import Start
from tests.cluster.jobs import account_job
from tests.cluster.jobs.account_job import DIES_AT, HANGS_AT

pytestmark = pytest.mark.job
HANG_S = 6.0


def checked(row: dict[str, Any], *, cause: str, step: int) -> dict[str, float]:
    """The phases of a recovery, each of which was seen, and which add up."""
    assert (row["cause"], row["restarted"], row["reached"]) == (cause, True, "first step")
    phases: dict[str, float] = row["phases_s"]
    assert list(phases) == list(PHASES)
    assert None not in phases.values()
    assert sum(phases.values()) + row["other_s"] == pytest.approx(row["total_s"], abs=0.01)
    # The step under way was begun by all, and finished by none.
    assert (row["step"], row["steps_lost"], row["saved_step"]) == (step, 0, step - 1)
    assert row["saved_by"] == "memory"
    assert phases["start"] == max(phases["start"], phases["load"], phases["first step"])
    return phases


@pytest.mark.long
def test_a_kill_and_a_hang_are_accounted_for_phase_by_phase(start: Start, tmp_path: Path) -> None:
    timeline, job_id = tmp_path / "t", f"account-{os.getpid()}"
    done = start(
        "launch", "--nproc-per-node", "2", "--max-restarts", "2", "--on-hang", "restart",
        "--hang-timeout", f"{HANG_S:g}", "--rdzv-id", job_id, "--rdzv-backend", "c10d",
        "--rdzv-endpoint", "localhost:0", "--timeline-path", timeline, "--no-warm-standby",
        Path(account_job.__file__), tmp_path / "checkpoints",
    ).wait(90)  # fmt: skip
    assert done.code == 0, done.err
    back = re.findall(r"relkit: back at step (\d+) after ([\d.]+) s: detect ", done.err)
    assert [int(step) for step, _ in back] == [DIES_AT, HANGS_AT]

    shown = start("status", job_id, "--json").wait()
    assert shown.code == 0, shown.err
    facts = json.loads(shown.out)
    assert (facts["state"], facts["steps_lost"]) == ("succeeded", 0)
    assert facts["restarts"] == {"killed by SIGKILL": 1, "hang": 1}
    killed, hung = facts["recoveries"]
    assert (killed["rank"], hung["rank"]) == (1, None)
    checked(killed, cause="killed by SIGKILL", step=DIES_AT)
    assert checked(hung, cause="hang", step=HANGS_AT)["detect"] >= HANG_S
    assert [float(total) for _, total in back] == pytest.approx(
        [killed["total_s"], hung["total_s"]], abs=0.06
    )
    # All that was not in a step: two recoveries, the start and the end.
    assert facts["ettr_basis"] == "steps"
    lost_s = facts["start"]["total_s"] + killed["total_s"] + hung["total_s"]
    first_steps_s = sum(row["phases_s"]["first step"] for row in (facts["start"], killed, hung))
    assert facts["productive_s"] <= facts["wall_s"] - lost_s + first_steps_s + 0.01
    assert 0.0 < facts["ettr"] < 0.5

    kept = json.loads((timeline / "recovery.json").read_text())
    assert kept["recoveries"] == facts["recoveries"]
    assert "Where the time of each restart went" in (timeline / "recovery.html").read_text()
    assert (timeline / "recovery.html").stat().st_mode & 0o777 == 0o600
    assert job_id in start("status").wait().out
