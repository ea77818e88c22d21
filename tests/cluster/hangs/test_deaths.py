"""Jobs that end by the death of a rank: it alone is named, with what its host knows of it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from relkit.post_mortem.memory_cgroup import mounts_of
from relkit.process import procfs
from tests.cluster.conftest import Start, report_of
from tests.patience import PATIENCE

pytestmark = [pytest.mark.job, pytest.mark.timeout(90 * PATIENCE)]
JOB = Path(__file__).parents[1] / "jobs" / "death_job.py"
LATE_LOOK = JOB.with_name("late_look.py")
LAUNCHERS = (
    pytest.param((), id="torch's look"),
    pytest.param((sys.executable, str(LATE_LOOK)), id="a late look", marks=pytest.mark.long),
)
VICTIM = 2
LIMIT_BYTES = 700 << 20


def death(start: Start, folder: Path, how: str, *more: str) -> dict[str, Any]:
    done = start(
        "launch", "--nproc-per-node", "3", "--redirects", "2", "--log-dir", folder / "log",
        "--timeline-path", folder / "t", JOB, how, str(VICTIM), *more,
    ).wait()  # fmt: skip
    assert done.code == 1, done.err
    report = report_of(folder / "t")
    assert report["culprits"] == [VICTIM], done.err
    assert report["findings"][0]["ranks"] == str(VICTIM)
    failed = {f["ranks"] for f in report["findings"] if f["status"] == "fail"}
    assert failed == {str(VICTIM)}
    return report


def words(report: dict[str, Any]) -> str:
    return " ".join(" ".join([f["title"], *f["reasons"]]) for f in report["findings"])


def row(report: dict[str, Any]) -> dict[str, Any]:
    rows = {row["rank"]: row for row in report["deaths"]}
    # They were looked at before the launcher ended them; some had lost their connection by then.
    assert all(rows[rank]["exit_code"] != -15 for rank in rows if rank != VICTIM)
    mine = rows[VICTIM]
    assert isinstance(mine, dict)
    return mine


@pytest.mark.long
def test_killed_while_it_imported(start: Start, tmp_path: Path) -> None:
    report = death(start, tmp_path, "import")
    assert row(report)["exit_code"] == -9
    assert "signal 9 (SIGKILL)" in words(report)
    assert "RK-DEATH-001" not in {f["id"] for f in report["findings"]}


@pytest.mark.long
def test_an_exception_with_its_last_lines_and_last_operation(start: Start, tmp_path: Path) -> None:
    report = death(start, tmp_path, "raise")
    mine = row(report)
    # Where gloo's thread is late, torch aborts the process while Python shuts down.
    assert mine["exit_code"] in (1, -6)
    assert any("ValueError: bad batch 17" in line for line in mine["output"][-2:])
    assert "ValueError: bad batch 17" in words(report)
    assert "its last operation was all_reduce" in words(report)


@pytest.mark.long
def test_an_exception_whose_process_aborts_on_its_way_out(start: Start, tmp_path: Path) -> None:
    report = death(start, tmp_path, "abort", str(tmp_path / "gate"))
    # From 3.14 on CPython lets the thread wait, and the process ends as it should.
    is_aborted = sys.version_info < (3, 14)
    assert row(report)["exit_code"] == (-6 if is_aborted else 1)
    if not is_aborted:
        return
    assert [f["id"] for f in report["findings"]][:2] == ["RK-HANG-002", "RK-DEATH-005"]
    assert "raised ValueError: bad batch 17, and aborted while Python shut down" in words(report)


def test_a_segmentation_fault(start: Start, tmp_path: Path) -> None:
    report = death(start, tmp_path, "segfault")
    assert row(report)["exit_code"] == -11
    assert "RK-DEATH-003" in {f["id"] for f in report["findings"]}
    if os.geteuid() == 0:
        assert ("segfault at 0" in words(report)) == procfs.has_kernels_pids()


@pytest.mark.long
def test_an_exit_code_of_its_own(start: Start, tmp_path: Path) -> None:
    report = death(start, tmp_path, "exit")
    mine = row(report)
    assert mine["exit_code"] == 3
    assert mine["output"][-1] == f"rank {VICTIM} is about to go"


@pytest.fixture
def small_cgroup() -> Iterator[Path]:
    """A memory cgroup with a limit, of whichever version has the memory controller here."""
    mounts = mounts_of(Path("/proc/self/mountinfo").read_text())
    folder = None
    for version, limit in ((1, "memory.limit_in_bytes"), (2, "memory.max")):
        if version in mounts:
            folder = mounts[version][1] / f"relkit-test-{os.getpid()}"
            folder.mkdir()
            if (folder / limit).exists():
                (folder / limit).write_text(str(LIMIT_BYTES))
                break
            folder.rmdir()
            folder = None
    assert folder is not None, "no memory cgroup can be made here"
    yield folder
    folder.rmdir()


@pytest.mark.long
@pytest.mark.root
def test_killed_for_memory(start: Start, tmp_path: Path, small_cgroup: Path) -> None:
    report = death(start, tmp_path, "memory", str(small_cgroup))
    mine = row(report)
    ids = [f["id"] for f in report["findings"]]
    assert ids[:2] == ["RK-HANG-002", "RK-DEATH-001"]
    assert mine["exit_code"] == -9
    assert mine["oom_kills"] == 1
    assert mine["cgroup"].endswith(small_cgroup.name)
    assert mine["memory_limit_bytes"] == LIMIT_BYTES
    assert ("out of memory: Killed process" in words(report)) == procfs.has_kernels_pids()


@pytest.mark.parametrize("program", LAUNCHERS)
def test_a_job_that_is_ended_from_outside_names_nobody(
    start: Start, tmp_path: Path, program: tuple[str, ...]
) -> None:
    job = start(
        "launch", "--nproc-per-node", "2", "--timeline-path", tmp_path / "t", JOB, "never", "-1",
        program=program,
    )  # fmt: skip
    job.wait_for("all there")
    if program:
        job.wait_for("the launcher has looked")
    workers = [pid for pid in procfs.children(job.process.pid) if "python" in _command(pid)]
    assert len(workers) == 2
    for pid in workers:
        os.kill(pid, signal.SIGTERM)
    done = job.wait()
    assert done.code == 1
    report = report_of(tmp_path / "t")
    assert report["culprits"] == []
    assert [f["id"] for f in report["findings"]] == ["RK-DEATH-004"], done.err


@pytest.mark.long
def test_who_ends_just_before_torch_looks_is_seen_before_torch_ends_the_others(
    start: Start, tmp_path: Path
) -> None:
    job = start(
        "launch", "--nproc-per-node", "4", "--timeline-path", tmp_path / "t", JOB, "never", "-1",
        program=(sys.executable, str(LATE_LOOK)),
    )  # fmt: skip
    job.wait_for("all there")
    job.wait_for("the launcher has looked")
    ranks = {procfs.rank_environment(pid)["RANK"]: pid for pid in procfs.children(job.process.pid)}
    os.kill(ranks[str(VICTIM)], signal.SIGKILL)
    done = job.wait()
    assert done.code == 1
    report = report_of(tmp_path / "t")
    assert report["culprits"] == [VICTIM], done.err
    assert row(report)["exit_code"] == -9


def test_a_launcher_that_is_asked_to_end_names_nobody(start: Start, tmp_path: Path) -> None:
    job = start(
        "launch", "--nproc-per-node", "2", "--timeline-path", tmp_path / "t", JOB, "never", "-1",
    )  # fmt: skip
    job.wait_for("all there")
    job.process.send_signal(signal.SIGTERM)
    done = job.wait()
    assert done.code == 128 + signal.SIGTERM
    assert "FAIL  RK" not in done.err


def _command(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace")
