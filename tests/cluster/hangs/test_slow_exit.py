"""A job whose scripts have ended and that is slow to exit: does it hang, or is it at work?"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.conftest import Done, Start, report_of
from tests.patience import PATIENCE

pytestmark = [pytest.mark.job, pytest.mark.timeout(200 * PATIENCE)]
JOB = Path(__file__).parents[1] / "jobs" / "slow_exit_job.py"


def run(start: Start, timeline: Path, how: str, on_hang: str) -> Done:
    """The whole job; its rank 1 is slow to exit."""
    job = start(
        "launch", "--nproc-per-node", "2", "--hang-timeout", "3", "--on-hang", on_hang,
        "--max-restarts", "1", "--timeline-path", timeline, JOB, how,
    )  # fmt: skip
    return job.wait(120)


@pytest.mark.long
def test_a_rank_that_is_at_work_as_it_exits_is_left_alone(start: Start, tmp_path: Path) -> None:
    done = run(start, tmp_path, "works", "restart")
    assert done.code == 0, done.err
    assert (
        "all scripts have ended: --on-hang restart is carried out only once no rank has" in done.err
    )
    assert done.err.count("; capturing all ranks") == 1
    assert "restarting the workers" not in done.err
    (finding,) = report_of(tmp_path)["findings"]
    assert (finding["id"], finding["status"], finding["ranks"]) == ("RK-HANG-027", "warn", "1")
    assert "exiting" in finding["title"]
    assert any("uploader" in reason for reason in finding["reasons"]), finding


@pytest.mark.long
def test_a_rank_that_does_nothing_as_it_exits_is_ended(start: Start, tmp_path: Path) -> None:
    done = run(start, tmp_path, "waits", "abort")
    assert done.code == 1, done.err
    assert (
        "all scripts have ended: --on-hang abort is carried out only once no rank has" in done.err
    )
    assert done.err.count("; capturing all ranks") == 2
    assert "the job hung and was ended (--on-hang abort)" in done.err
