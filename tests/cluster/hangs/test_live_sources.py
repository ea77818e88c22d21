"""Real jobs that the hook does not see: PyTorch's own recorder is read while they run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from relkit.process import procfs
from tests.cluster.conftest import Start, report_of
from tests.patience import PATIENCE
from tests.unit.nccl_ras.simulated_ras import listening, ras_answer, ras_rank

pytestmark = [pytest.mark.job, pytest.mark.timeout(150 * PATIENCE)]
JOB = Path(__file__).parents[1] / "jobs" / "live_source_job.py"
HANGS = ("launch", "--nproc-per-node", "4", "--hang-timeout", "6", "--on-hang", "abort")
WITHOUT_PRELOAD = ("--no-python", "/usr/bin/env", "-u", "LD_PRELOAD", sys.executable)


def assert_rank_2_is_named(timeline: Path, err: str) -> None:
    report = report_of(timeline)
    assert report["culprits"] == [2], err
    (said,) = [each for each in report["findings"] if each["status"] == "fail"]
    # Rank, operation and line.
    assert "live_source_job.py:" in said["title"], err
    assert "wait_for_input" in said["title"]
    assert "ranks 0-1,3 wait for it in all_reduce #21 of the default group" in said["title"]
    sources = report["sources"]
    assert sources["operations"] == {"hook": "", "flight recorder": "0-3"}
    assert sources["disputes"] == {}
    said_of = sources["said"]["flight recorder"]
    assert said_of["2"] == "20 operations called, none in flight"
    assert said_of["3"] == ("21 operations called, all_reduce #21 of the default group in flight")


@pytest.mark.long
@pytest.mark.parametrize("how", ["sleep", "lock"])
def test_without_the_hook_the_rank_that_holds_the_job_up_is_named(
    start: Start, tmp_path: Path, how: str
) -> None:
    done = start(*HANGS, "--no-hook", "--timeline-path", tmp_path, JOB, how).wait(100)
    assert done.code == 1, done.err
    assert "the hook is off: hangs are looked for in PyTorch's flight recorder" in done.err
    assert_rank_2_is_named(tmp_path, done.err)
    assert "hook" not in report_of(tmp_path)["sources"]["said"]


@pytest.mark.long
def test_without_the_hook_a_job_that_hangs_is_restarted(start: Start, tmp_path: Path) -> None:
    done = start(
        "launch", "--nproc-per-node", "4", "--hang-timeout", "6", "--on-hang", "restart",
        "--max-restarts", "1", "--no-warm-standby", "--no-hook", "--timeline-path", tmp_path, JOB,
        "once",
    ).wait(100)  # fmt: skip
    assert done.code == 0, done.err
    assert_rank_2_is_named(tmp_path, done.err)
    assert done.err.count("restarting the workers") == 1
    assert done.out.count("all done") == 4
    assert done.err.count("capturing all ranks") == 1
    # The new workers are asked as the old ones were.
    assert done.err.count("Server listening") == 8


@pytest.mark.long
def test_a_hook_that_sees_nothing_is_replaced_and_that_is_said(
    start: Start, tmp_path: Path
) -> None:
    # LD_PRELOAD does not reach the ranks, as in some containers.
    done = start(
        *HANGS, "--timeline-path", tmp_path, *WITHOUT_PRELOAD, JOB, "sleep"
    ).wait(100)  # fmt: skip
    assert done.code == 1, done.err
    assert "the hook sees no collective, the flight recorder does and is used instead" in done.err
    assert_rank_2_is_named(tmp_path, done.err)
    (said,) = [e for e in report_of(tmp_path)["findings"] if e["status"] == "fail"]
    assert "hook: it has seen no collective" in said["reasons"]


@pytest.mark.long
def test_beside_a_hook_that_sees_all_it_is_one_more_witness(start: Start, tmp_path: Path) -> None:
    done = start(
        *HANGS, "--timeline-path", tmp_path, JOB, "sleep", RELKIT_WORKER_SERVER="1"
    ).wait(100)  # fmt: skip
    assert done.code == 1, done.err
    report = report_of(tmp_path)
    assert report["culprits"] == [2], done.err
    assert report["sources"]["operations"] == {"hook": "0-3", "flight recorder": ""}
    assert report["sources"]["said"]["flight recorder"]["2"] == (
        "20 operations called, none in flight"
    )
    assert report["sources"]["disputes"] == {}
    assert not [each for each in report["findings"] if each["id"] == "RK-HANG-017"]


@pytest.mark.long
def test_what_nccls_ras_says_stands_beside_the_hook(start: Start, tmp_path: Path) -> None:
    """A simulated RAS of a real gloo job."""
    launcher: list[int] = []

    def answer() -> bytes:
        ranks = pids_of_ranks(launcher[0])
        told = [ras_rank(r, pid, AllReduce=20 + (r != 2)) for r, pid in sorted(ranks.items())]
        return ras_answer(("0xabc", told, []))

    with listening(answer) as ras:
        job = start(
            *HANGS, "--timeline-path", tmp_path, JOB, "sleep",
            NCCL_RAS_ADDR=f"127.0.0.1:{ras.port}",
        )  # fmt: skip
        launcher.append(job.process.pid)
        done = job.wait(100)
    assert done.code == 1, done.err
    report = report_of(tmp_path)
    assert report["culprits"] == [2], done.err
    assert report["sources"]["operations"] == {"hook": "0-3", "NCCL RAS": ""}
    assert report["sources"]["said"]["NCCL RAS"]["2"] == (
        "20 collectives launched; in communicator 0xabc 1 fewer than its first rank"
    )
    assert report["sources"]["disputes"] == {}
    # Only for the verdict, and twice.
    assert ras.commands.count("status") == 2


def pids_of_ranks(launcher: int) -> dict[int, int]:
    """By rank, the processes below a launcher."""
    pids = {}
    for pid in procfs.children(launcher):
        environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        names = dict(each.split(b"=", 1) for each in environ if b"=" in each)
        if b"RANK" in names and b"live_source_job" in Path(f"/proc/{pid}/cmdline").read_bytes():
            pids[int(names[b"RANK"])] = pid
    return pids


# One rank says as much as two.
@pytest.mark.parametrize(
    "environ", [{}, pytest.param({"RELKIT_WORKER_SERVER": "1"}, marks=pytest.mark.long)]
)
def test_a_job_with_servers_ends_as_without(
    start: Start, tmp_path: Path, environ: dict[str, str]
) -> None:
    no_hook = () if environ else ("--no-hook",)
    done = start(
        "launch", *no_hook, "--timeline-path", tmp_path, JOB, "end",
        **environ,
    ).wait(100)  # fmt: skip
    assert done.code == 0, done.err
    assert done.out.count("all done") == 1
    assert done.err.count("Server listening") == 1
    assert "terminate called" not in done.err


def test_nobody_is_asked_where_a_person_says_no(start: Start, tmp_path: Path) -> None:
    done = start(
        "launch", "--no-hook", "--timeline-path", tmp_path, JOB, "end",
        RELKIT_WORKER_SERVER="0",
    ).wait(100)  # fmt: skip
    assert done.code == 0, done.err
    assert "the hook is off: hangs are not detected" in done.err
    assert "Server listening" not in done.err


def test_a_job_that_the_hook_sees_has_no_server(start: Start, tmp_path: Path) -> None:
    done = start(
        "launch", "--timeline-path", tmp_path, JOB, "end"
    ).wait(100)  # fmt: skip
    assert done.code == 0, done.err
    assert "Server listening" not in done.err
