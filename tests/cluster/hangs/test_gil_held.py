"""A rank whose thread sleeps in native code with Python's lock is named for that, with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.conftest import Start, report_of
from tests.patience import PATIENCE

pytestmark = [pytest.mark.job, pytest.mark.timeout(120 * PATIENCE)]
JOB = Path(__file__).parents[1] / "jobs" / "gil_job.py"


@pytest.mark.long
@pytest.mark.parametrize(
    ("which", "words"), [("main", "the main thread holds"), ("thread", "its thread holder holds")]
)
def test_the_thread_that_has_the_lock(start: Start, tmp_path: Path, which: str, words: str) -> None:
    done = start(
        "launch", "--nproc-per-node", "2", "--hang-timeout", "5", "--on-hang", "abort",
        "--timeline-path", tmp_path, JOB, which,
    ).wait(80)  # fmt: skip
    assert done.code == 1, done.err
    report = report_of(tmp_path)
    assert report["culprits"] == [1], done.err
    (said,) = [each for each in report["findings"] if each["status"] == "fail"]
    assert said["id"] == "RK-HANG-016", done.err
    assert "hold_the_lock, holding the interpreter lock in native code" in said["title"]
    (reason,) = [each for each in said["reasons"] if words in each]
    assert "in pthread_mutex_lock" in reason
