"""A rank of a real job stalls: it is named long before the timeout, and the job is left alone."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from tests.cluster.conftest import Start, Started
from tests.patience import PATIENCE

pytestmark = [pytest.mark.job, pytest.mark.timeout(200 * PATIENCE)]
JOB = Path(__file__).parents[1] / "jobs" / "stall_job.py"


def payload(job: Started, folder: Path, number: int) -> None:
    """Let the next stall be in another kind of operation."""
    (folder / f"payload-{number}").touch()
    job.wait_for(f"payload {number}\n", 90)


def suspicion_of(job: Started, rank: int) -> str:
    """The line about a rank, once it is there."""
    job.wait_for(f"suspicion: rank {rank} ", 60)
    (line,) = [each for each in job.text.splitlines() if f"suspicion: rank {rank} " in each]
    assert f"rank {rank} has not joined all_reduce #" in line
    assert "of the default group for" in line
    return line


@pytest.mark.long
def test_stalls_are_named_and_gone_again(start: Start, tmp_path: Path) -> None:
    folder, timeline, job_id = tmp_path / "f", tmp_path / "t", f"stall-{os.getpid()}"
    folder.mkdir()
    job = start(
        "launch", "--nproc-per-node", "4", "--rdzv-id", job_id, "--rdzv-backend", "c10d",
        "--rdzv-endpoint", "localhost:0", "--timeline-path", timeline, JOB, folder,
    )  # fmt: skip

    payload(job, folder, 1)
    (folder / "stop-2").touch()
    try:
        line = suspicion_of(job, 2)
    finally:
        (folder / "stop-2").unlink()
        os.kill(int((folder / "pid-2").read_text()), signal.SIGCONT)
    assert "; frozen: no operation and no CPU time in " in line
    assert line.endswith(", stopped by a signal")
    job.wait_for("rank 2 goes on after ")

    payload(job, folder, 2)
    (folder / "sleep-1").touch()
    assert "; frozen: no operation and no CPU time in " in suspicion_of(job, 1)
    (folder / "sleep-1").unlink()
    job.wait_for("rank 1 goes on after ")

    payload(job, folder, 3)
    (folder / "spin-3").touch()
    assert "; spinning: no operation in " in suspicion_of(job, 3)
    shown = start("status", job_id, "--json").wait()
    facts = json.loads(shown.out)
    assert "rank 3 has not joined" in facts["suspicions"]["present"], shown.out
    (folder / "spin-3").unlink()
    job.wait_for("rank 3 goes on after ")

    (folder / "end").touch()
    done = job.wait()
    assert done.code == 0, done.err
    assert "capturing" not in done.err
    assert not list(timeline.glob("*.stacktrace"))
    shown = start("status", job_id, "--json").wait()
    assert shown.code == 0, shown.err
    suspicions = json.loads(shown.out)["suspicions"]
    # On a crowded host others may come too late as well.
    assert suspicions["began"] == suspicions["went_on"] >= 3, done.err
    assert (suspicions["became_verdicts"], suspicions["present"]) == (0, "")
    assert "came and went" in start("status", job_id).wait().err


@pytest.mark.long
def test_a_suspicion_is_evidence_of_the_verdict(start: Start, tmp_path: Path) -> None:
    folder, timeline = tmp_path / "f", tmp_path / "t"
    folder.mkdir()
    job = start(
        "launch", "--nproc-per-node", "4", "--hang-timeout", "20", "--on-hang", "abort",
        "--timeline-path", timeline, JOB, folder,
    )  # fmt: skip
    payload(job, folder, 1)
    (folder / "sleep-1").touch()
    done = job.wait(90)
    assert done.code == 1, done.err
    report = json.loads((timeline / "report.json").read_text())
    assert report["culprits"] == [1], done.err
    (suspicion,) = report["suspicions"]
    assert (suspicion["ranks"], suspicion["manner"]) == ("1", "frozen"), done.err
    (said,) = [each for each in report["findings"] if each["status"] == "fail"]
    assert any(each.startswith("suspected before this verdict") for each in said["reasons"])
    assert "goes on" not in done.err


@pytest.mark.long
def test_imports_after_the_first_operation_are_no_hang(start: Start, tmp_path: Path) -> None:
    # On two CPUs that takes longer than the timeout; on a crowded host, several times as long.
    done = start(
        "launch", "--nproc-per-node", "4", "--hang-timeout", "6", "--on-hang", "abort",
        "--timeline-path", tmp_path / "t", JOB.with_name("slow_start_job.py"), "4.5",
    ).wait(90)  # fmt: skip
    assert done.code == 0, done.err
    assert "capturing" not in done.err
