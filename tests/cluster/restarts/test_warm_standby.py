"""A killed rank's job goes on in the standbys, as if nothing had happened; and nobody is left."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from relkit.process import procfs
from tests.cluster.conftest import Start, Started

pytestmark = [pytest.mark.job, pytest.mark.timeout(150)]

JOB = Path(__file__).parents[1] / "jobs" / "standby_job.py"
OWN_MODULE = Path(__file__).parents[1] / "jobs" / "standby_job_imports.py"
KILL_AT = 3


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The script, with a module of its own beside it, and where its ranks write."""
    for path in (JOB, OWN_MODULE):
        shutil.copy(path, tmp_path)
    for name in ("disturbed", "undisturbed"):
        (tmp_path / name).mkdir()
    return tmp_path


def launch(start: Start, folder: Path, *line: str | Path, as_module: bool = False) -> Started:
    """Start the job that is killed at a step."""
    script = ("-m", JOB.stem) if as_module else (folder / JOB.name,)
    return start(
        "launch", "--nproc-per-node", "2", "--max-restarts", "1", "--rdzv-backend", "c10d",
        "--rdzv-endpoint", "localhost:0", "--rdzv-id", f"standby-{os.getpid()}",
        "--timeline-path", folder / "t", *script, folder / "disturbed",
        "--kill-at", str(KILL_AT), "--go", folder / "go", *line,
        # The tests' own start of Python would be a part of the script.
        program=("env", "-u", "PYTHONPATH", "-C", str(folder), sys.executable, "-m", "relkit"),
    )  # fmt: skip


def standby_pids(launcher: Started) -> set[int]:
    """Those that wait."""
    return {pid for pid in procfs.children(launcher.process.pid) if procfs.is_standby(pid)}


def all_wait(launcher: Started) -> set[int]:
    """The standbys, once there is one for each rank and all are ready."""
    launcher.wait_for("warm standby: 2 processes")
    pids = standby_pids(launcher)
    assert len(pids) == 2
    return pids


def said(folder: Path, rank: int, attempt: int) -> list[dict[str, Any]]:
    lines = (folder / f"rank-{rank}.jsonl").read_text().splitlines()
    return [facts for line in lines if (facts := json.loads(line))["attempt"] == attempt]


def losses(folder: Path, rank: int, attempt: int) -> list[str]:
    return [facts["loss"] for facts in said(folder, rank, attempt) if "loss" in facts]


@pytest.mark.parametrize("as_module", [False, True])
def test_standbys_go_on_as_the_ranks_would_have(
    start: Start, folder: Path, as_module: bool
) -> None:
    job = launch(start, folder, "--exit", "5", as_module=as_module)
    pids = all_wait(job)
    recorders = Path(f"/dev/shm/relkit-{os.geteuid()}/standby-{os.getpid()}")
    assert {int(path.stem) for path in recorders.glob("*.rkhook")}.isdisjoint(pids)
    (folder / "go").touch()
    done = job.wait(90)
    # Their exit code is theirs: no restart is left.
    assert done.code == 1, done.err
    assert "exited with code 5" in done.err
    undisturbed = start(
        "launch", "--nproc-per-node", "2", "--timeline-path", folder / "t2",
        folder / JOB.name, folder / "undisturbed",
    ).wait(90)  # fmt: skip
    assert undisturbed.code == 0, undisturbed.err
    for rank in range(2):
        begun = said(folder / "disturbed", rank, 1)[0]
        assert begun["pid"] in pids
        assert begun["imported"] == 1
        expected = losses(folder / "undisturbed", rank, 0)
        assert len(expected) == 6
        assert losses(folder / "disturbed", rank, 1) == expected
        assert losses(folder / "disturbed", rank, 0) == expected[:KILL_AT]
    recovery = json.loads((folder / "t/recovery.json").read_text())
    assert [each["standbys"] for each in recovery["recoveries"]][:1] == [2]
    assert recovery["standby_processes"] == 2
    assert recovery["standby_pss_mb"] > 0


@pytest.mark.long
def test_one_that_does_not_answer_is_left_and_the_job_goes_on(start: Start, folder: Path) -> None:
    job = launch(start, folder)
    stopped = min(all_wait(job))
    os.kill(stopped, signal.SIGSTOP)
    (folder / "go").touch()
    done = job.wait(90)
    assert done.code == 0, done.err
    assert "its standby was not used: it did not take over (TimeoutError)" in done.err
    assert "with 1 warm standby after" in done.err
    assert not psutil.pid_exists(stopped)


@pytest.mark.long
def test_they_end_with_a_launcher_that_is_killed(start: Start, folder: Path) -> None:
    job = launch(start, folder)
    descriptors = [os.pidfd_open(pid) for pid in all_wait(job)]
    job.process.kill()
    job.process.wait()
    for descriptor in descriptors:
        assert select.select([descriptor], [], [], 60)[0]
        os.close(descriptor)


@pytest.mark.long
def test_without_them_the_job_starts_anew(start: Start, folder: Path) -> None:
    (folder / "go").touch()
    done = start(
        "launch", "--nproc-per-node", "2", "--max-restarts", "1", "--no-warm-standby",
        "--timeline-path", folder / "t3", folder / JOB.name, folder / "disturbed",
        "--kill-at", str(KILL_AT), "--go", folder / "go",
    ).wait(90)  # fmt: skip
    assert done.code == 0, done.err
    assert "standby" not in done.err.replace("standby_job", "").replace("test_warm_standby", "")
    assert len(losses(folder / "disturbed", 0, 1)) == 6
