"""The job script of the Slurm page, as sbatch runs it: exit codes and signals are passed on."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.hosts import some_hosts
from tests.cluster.slurm import Slurm, a_slurm

pytestmark = [pytest.mark.root, pytest.mark.slurm, pytest.mark.long, pytest.mark.timeout(240)]
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "slurm.md"

# Ends as it is told to; one without a word waits until it is asked to end, and says so.
_TRAIN = """
import os, signal, sys, time
from pathlib import Path
if len(sys.argv) > 1:
    sys.exit(int(sys.argv[1]))
def save(*_):
    Path(os.environ["ASKED"], os.environ["RANK"]).touch()
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
Path(os.environ["ASKED"], "up" + os.environ["RANK"]).touch()
while True:
    time.sleep(0.1)
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    folder = tmp_path_factory.mktemp("slurm")
    with some_hosts(folder, 2, sshd=False) as hosts, a_slurm(folder / "slurm", hosts) as slurm:
        yield slurm


def batch(cluster: Slurm, folder: Path, words: str, *options: str) -> tuple[int, str]:
    """Exit code and output of the page's script with that script in it, once the job has ended."""
    train = folder / "train.py"
    train.write_text(_TRAIN)
    (text,) = re.findall(r"```bash\n(#!/bin/bash\n.*?)```", PAGE.read_text(), re.DOTALL)
    for old, new in {
        "--nodes=4": "--nodes=2",
        " --gpus-per-node=8": "",
        "--nnodes 4": "--nnodes 2",
        "--nproc-per-node 8": "--nproc-per-node 1",
        "--max-restarts 3": "--max-restarts 0",
        "/shared/hangs/": f"{folder}/",
        "train.py": f"{shlex.quote(str(train))} {words}",
        # What it measures is another test's.
        "relkit netcheck": "true relkit netcheck",
        "srun relkit": f"srun {shlex.quote(sys.executable)} -m relkit",
    }.items():
        assert old in text
        text = text.replace(old, new)
    script = folder / "job.sh"
    script.write_text(text)
    done = subprocess.run(
        ["sbatch", "--wait", "-D", folder, "-o", folder / "out", *options, script],
        env={**os.environ, **cluster.environ, "ASKED": str(folder), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    out = (folder / "out").read_text() if (folder / "out").exists() else ""
    return done.returncode, done.stdout + done.stderr + out + cluster.logs()


@pytest.mark.parametrize("code", [0, 3])
def test_its_exit_code_is_that_of_the_job(cluster: Slurm, tmp_path: Path, code: int) -> None:
    ended, said = batch(cluster, tmp_path, str(code))
    # A failed job is 1, whatever its script has ended with.
    assert ended == (1 if code else 0), said


def test_before_its_time_is_over_the_ranks_are_asked_to_save(
    cluster: Slurm, tmp_path: Path
) -> None:
    ended, said = batch(cluster, tmp_path, "", "--time=2", "--signal=B:TERM@60")
    assert (tmp_path / "0").exists(), said
    assert (tmp_path / "1").exists(), said
    assert ended == 143, said
    assert "DUE TO TIME LIMIT" not in said
