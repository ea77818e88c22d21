"""A pipeline that hangs between sends and receives: the stage that went wrong is named, alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.conftest import Start, report_of

pytestmark = pytest.mark.job
JOB = Path(__file__).parents[1] / "jobs" / "pipeline_job.py"


@pytest.mark.long
@pytest.mark.parametrize(
    ("fault", "finding", "words"),
    [
        ("collective", "RK-HANG-006", "all_reduce #4 of the default group"),
        ("send", "RK-HANG-014", "rank 2"),
        ("swap", "RK-HANG-014", "rank 0"),
        ("batch", "RK-HANG-013", "rank 2"),
    ],
)
def test_the_stage_that_went_wrong(
    start: Start, tmp_path: Path, fault: str, finding: str, words: str
) -> None:
    done = start(
        "launch", "--nproc-per-node", "3", "--hang-timeout", "5", "--on-hang", "abort",
        "--timeline-path", tmp_path, JOB, fault,
    ).wait(80)  # fmt: skip
    assert done.code == 1, done.err
    report = report_of(tmp_path)
    assert report["culprits"] == [1], done.err
    (said,) = [each for each in report["findings"] if each["status"] == "fail"]
    assert said["id"] == finding
    assert words in said["title"]
