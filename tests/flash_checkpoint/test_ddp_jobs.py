"""Jobs that save at every step and are killed resume from memory, bit for bit."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from relkit.checkpoint import iteration_folder
from relkit.flash_checkpoint.on_disk import persisted
from relkit.flash_checkpoint.on_disk.disk import LAUNCHERS_FOLDER, TRACKER, latest
from relkit.flash_checkpoint.slots import slot_folder
from tests.cluster.conftest import Done, Start, free_port, orphans_come_to_us, start, until
from tests.eager import eager
from tests.flash_checkpoint.jobs.states import same
from tests.patience import PATIENCE

__all__ = ["free_port", "orphans_come_to_us", "start"]
pytestmark = [pytest.mark.job, pytest.mark.timeout(120)]

JOB = Path(__file__).parent / "jobs" / "ddp_job.py"
STEPS = 12
NEVER = str(1000)
STATES = "states"
_LOSS = re.compile(r"^rank (\d+) step (\d+) loss (\S+)$", re.MULTILINE)


def losses(*jobs: Done) -> dict[tuple[int, int], str]:
    """(rank, step) -> loss; a step that was repeated must have given the same."""
    seen: dict[tuple[int, int], str] = {}
    for done in jobs:
        for rank, step, loss in _LOSS.findall(done.out):
            key = int(rank), int(step)
            assert seen.setdefault(key, loss) == loss, f"{key} differs after a restart"
    return seen


def starts(done: Done) -> list[str]:
    """Where each attempt began, as it says itself."""
    return re.findall(r"relkit: flash checkpoint: (.*)", done.err)


def torchrun(folder: Path, *arguments: str, **environ: str) -> Done:
    """The job under torch's own launcher."""
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
         str(JOB), str(folder), *arguments],
        env=eager({**os.environ, "OMP_NUM_THREADS": "1", **environ}),
        capture_output=True, text=True, timeout=60 * PATIENCE, check=False,
    )  # fmt: skip
    return Done(done.returncode, done.stdout, done.stderr, 0.0)


@pytest.fixture(scope="module")
def undisturbed(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, dict[tuple[int, int], str]]:
    """The folder and the losses of a job that was not killed, with files of steps 6 and 12."""
    folder = tmp_path_factory.mktemp("undisturbed")
    (folder / STATES).mkdir()
    done = torchrun(folder, str(STEPS), "6", RELKIT_TEST_STATES=str(folder / STATES))
    assert done.code == 0, done.err
    return folder, losses(done)


# One rank at a step; one, and then both.
KILLS = (
    pytest.param("0:1:8", [8], id="once"),
    pytest.param("0:1:4,1:0:8,1:1:8", [4, 8], id="twice", marks=pytest.mark.long),
)


@pytest.mark.parametrize(("deeds", "killed_at"), KILLS)
def test_killed_workers_go_on_from_memory(
    start: Start,
    tmp_path: Path,
    undisturbed: tuple[Path, dict[tuple[int, int], str]],
    deeds: str,
    killed_at: list[int],
) -> None:
    job = f"killed-workers-{os.getpid()}"
    line = ("launch", "--nproc-per-node", "2", "--max-restarts", "2", "--rdzv-id", job,
            "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0",
            "--timeline-path", tmp_path / "timeline")  # fmt: skip
    done = start(*line, JOB, tmp_path / "ck", str(STEPS), NEVER, deeds).wait(90)
    assert done.code == 0, done.err
    assert losses(done) == undisturbed[1]
    lines = starts(done)
    assert lines[0] == "nothing was saved: training begins"
    began = [int(number) for number in re.findall(r"step (\d+) from memory", "\n".join(lines))]
    # The killed rank had begun to save its step, which may be whole or not.
    assert len(began) == len(killed_at), lines
    pairs = zip(began, killed_at, strict=True)
    assert all(made - 1 <= step <= made for step, made in pairs), lines
    assert slot_folder.folders_of(job) == ()
    assert not (tmp_path / "ck" / TRACKER).exists()
    # Meanwhile the launcher has written what was in memory when the workers were killed.
    step = persisted_step(tmp_path / "ck", undisturbed[0])
    assert step in (7, 8), done.err
    assert done.err.count(f"flash checkpoint: step {step} is kept in ") == 1, done.err


def persisted_step(ck: Path, undisturbed: Path) -> int:
    """The step that launchers have persisted; each rank's file has the bits of a real step."""
    found = persisted.latest(ck)
    assert found is not None
    for rank in range(2):
        state = torch.load(found.path / f"rank-{rank}.pt", weights_only=False)
        real = torch.load(undisturbed / STATES / f"{rank}-{found.step}.pt", weights_only=False)
        assert same(state, real), f"rank {rank} differs from step {found.step}"
    assert iteration_folder.problems(found.path) == ()
    assert iteration_folder.half_written(ck / LAUNCHERS_FOLDER) == ()
    return found.step


@pytest.mark.long
def test_two_launchers_persist_what_a_killed_job_had_in_memory(
    start: Start,
    tmp_path: Path,
    free_port: int,
    undisturbed: tuple[Path, dict[tuple[int, int], str]],
) -> None:
    deeds = "0:0:5:go-saved,0:1:5:kill-saved"
    nodes = [
        start("launch", "--nnodes", "2", "--nproc-per-node", "1",
              "--rdzv-id", f"two-launchers-{os.getpid()}",
              "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{free_port}",
              "--timeline-path", tmp_path / f"timeline{node}",
              JOB, tmp_path / "ck", str(STEPS), NEVER, deeds)
        for node in range(2)
    ]  # fmt: skip
    jobs = [node.wait(90) for node in nodes]
    assert [job.code for job in jobs] == [1, 1], jobs
    assert persisted_step(tmp_path / "ck", undisturbed[0]) == 5
    lines = [line for job in jobs for line in starts(job) if "is kept in" in line]
    assert lines, jobs
    assert re.fullmatch(
        r"step 5 is kept in \S+/ck/from-memory/iter_0000005: the newest that all 2 ranks have whole"
        r" \(rank \d \(pid \d+\) .*\)",
        lines[0],
    )
    (report,) = tmp_path.glob("timeline?/flash_checkpoint.json")
    assert json.loads(report.read_text())["step"] == 5
    # On one node, with the same number of ranks: each has its own state, random streams included.
    again = torchrun(tmp_path / "ck", str(STEPS), NEVER)
    assert starts(again) == [f"step 5 from {tmp_path}/ck/from-memory/iter_0000005"]
    assert losses(again) == {at: x for at, x in undisturbed[1].items() if at[1] > 5}


@pytest.mark.long
def test_a_launcher_that_is_ended_persists_what_is_in_memory(
    start: Start, tmp_path: Path, undisturbed: tuple[Path, dict[tuple[int, int], str]]
) -> None:
    deeds = "0:0:5:stop-saved,0:1:5:stop-saved"
    job = start("launch", "--nproc-per-node", "2", "--timeline-path", tmp_path / "timeline",
                JOB, tmp_path / "ck", str(STEPS), NEVER, deeds)  # fmt: skip
    until(lambda: job.text.count("stopped\n") == 2, job)
    job.process.send_signal(signal.SIGTERM)
    done = job.wait(90)
    assert done.code == 128 + signal.SIGTERM, done.err
    assert persisted_step(tmp_path / "ck", undisturbed[0]) == 5
    assert "(the launcher got SIGTERM)" in starts(done)[-1]
    report = json.loads((tmp_path / "timeline" / "flash_checkpoint.json").read_text())
    assert report["findings"][0]["id"] == "RK-FLASH-001"


@pytest.mark.long
def test_from_disk_where_no_launcher_keeps_the_memory(
    tmp_path: Path, undisturbed: tuple[Path, dict[tuple[int, int], str]]
) -> None:
    whole, expected = undisturbed
    found = latest(whole)
    assert found is not None
    assert (found.step, found.path) == (STEPS, whole / f"checkpoint-{STEPS}.pt")
    # torch's own format: nothing of relkit is needed to open it.
    state = torch.load(whole / "checkpoint-6.pt", weights_only=False)
    assert state["step"] == 6
    shutil.copytree(whole, tmp_path / "ck")
    job = torchrun(tmp_path / "ck", str(STEPS + 2), NEVER)
    assert job.code == 0, job.err
    assert starts(job) == [f"step {STEPS} from {tmp_path}/ck/checkpoint-{STEPS}.pt"]
    assert sorted(losses(job)) == [(r, s) for r in (0, 1) for s in (STEPS + 1, STEPS + 2)]
    assert sorted(expected)[-1] == (1, STEPS)


@pytest.mark.root
def test_a_full_dev_shm_leaves_the_job_and_its_saves_to_disk(
    start: Start, tmp_path: Path, undisturbed: tuple[Path, dict[tuple[int, int], str]]
) -> None:
    line = (
        "launch",
        "--nproc-per-node",
        "2",
        "--no-hook",
        "--timeline-path",
        tmp_path / "timeline",
    )
    small = ("unshare", "--mount", "sh", "-c",
             'mount -t tmpfs -o size=64k relkit-test /dev/shm && exec "$@"', "sh")  # fmt: skip
    program = (*small, sys.executable, "-m", "relkit")
    done = start(*line, JOB, tmp_path / "ck", str(STEPS), "6", program=program).wait(60)
    assert done.code == 0, done.err
    assert losses(done) == undisturbed[1]
    assert re.search(
        r"no room in /dev/shm/\S+ .*: [\d,]+ bytes are needed, and [\d,]+ are", done.err
    )
    assert done.err.count("no room in") == 2, "each rank reports it once"
    found = latest(tmp_path / "ck")
    assert found is not None
    assert found.step == STEPS
