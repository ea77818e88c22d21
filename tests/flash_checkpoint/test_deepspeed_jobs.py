"""DeepSpeed jobs that save at every step and are killed resume from memory, bit for bit."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from relkit.flash_checkpoint.disk_report import verify
from tests.cluster.conftest import Start, orphans_come_to_us, start
from tests.flash_checkpoint.jobs.undisturbed_run import STEPS, run
from tests.patience import PATIENCE

__all__ = ["orphans_come_to_us", "start"]
pytestmark = [pytest.mark.job, pytest.mark.timeout(300)]

JOB = Path(__file__).parent / "jobs" / "deepspeed_job.py"
OPENER = Path(__file__).parent / "jobs" / "deepspeed_engine.py"
# Each is a minute of CPU; `make stress` has all of them.
STAGES = (0, 2, 3) if os.environ.get("ALL_ZERO_STAGES") else (3,)
_STATE = re.compile(r"^state (\d) (\d+) (.*)$", re.MULTILINE)


def opened(stage: int, folder: Path, tag: str) -> set[str]:
    """What plain DeepSpeed, without relkit, has on each rank when it has loaded a checkpoint."""
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
         str(OPENER), str(stage), str(folder), tag],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": ""},
        capture_output=True, text=True, timeout=120 * PATIENCE, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return set(re.findall(r"^opened (.*)$", done.stdout, re.MULTILINE))


@pytest.mark.long
@pytest.mark.parametrize("stage", STAGES)
def test_a_killed_engine_goes_on_from_memory_and_plain_deepspeed_opens_the_files(
    start: Start, tmp_path: Path, stage: int
) -> None:
    deeds = "0:0:4:kill-saved,0:1:4:kill-saved"
    done = run(start, tmp_path, JOB, str(stage), str(STEPS), deeds)
    assert re.findall(r"flash checkpoint: step (\d+) from memory", done.err) == ["4"], done.err
    real = {(int(rank), int(step)): rest for rank, step, rest in _STATE.findall(done.out)}
    ck = tmp_path / "ck"
    # What the loop has saved, and what launchers have when the ranks were killed.
    for folder, tag, step in ((ck, "", STEPS), (ck / "from-memory", "iter_0000004", 4)):
        expected = {f"{rank} {step} {real[rank, step]} {8 * step}" for rank in range(2)}
        assert opened(stage, folder, tag) == expected
    report = verify(ck, argv=(), started=0.0)
    assert (report.facts["steps"], report.facts["whole"]) == ([4, STEPS], [4, STEPS])
    assert (ck / "zero_to_fp32.py").exists() == (stage > 0)


@pytest.mark.long
def test_a_later_job_goes_on_from_disk_with_the_same_random_numbers(
    start: Start, tmp_path: Path
) -> None:
    run(start, tmp_path, JOB, "1", "2", "-", steps=2)
    done = run(start, tmp_path, JOB, "1", "1000", "-", steps=4, begun=2)
    told = re.findall(r"flash checkpoint: step (\d+) from (.*)", done.err)
    assert told == [("2", str(tmp_path / "ck" / "global_step2"))]
