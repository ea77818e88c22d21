"""`relkit stacks dump` of ranks that mpirun and srun started: real launchers, no torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from relkit.commands.subcommands.stacks_dump import dump
from relkit.stacks.dumpfile import read_dump
from tests.cluster.hosts import some_hosts
from tests.cluster.slurm import a_slurm
from tests.patience import PATIENCE
from tests.waiting import eventually

pytestmark = [pytest.mark.root, pytest.mark.long, pytest.mark.timeout(240)]
RANKS = 2
# Each has a helper with its environment, as a loader's worker has; it ends with the rank.
_TRAIN = """
import subprocess, sys
from pathlib import Path
def next_batch(up):
    command = [sys.executable, "-c", "input()"]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
    Path(up, str(child.pid)).touch()
    child.wait()
next_batch(sys.argv[1])
"""


@contextmanager
def job(folder: Path, *launcher: str, **environ: str) -> Iterator[None]:
    """Runs the script under a launcher until the block ends."""
    up, script = folder / "up", folder / "train.py"
    up.mkdir()
    script.write_text(_TRAIN)
    log = folder / "log"
    with log.open("w") as stream:
        process = subprocess.Popen(
            [*launcher, sys.executable, str(script), str(up)],
            env={**os.environ, **environ},
            stdout=stream,
            stderr=stream,
            stdin=subprocess.DEVNULL,
        )
    try:
        eventually(
            lambda: len(list(up.iterdir())) == RANKS or process.poll() is not None,
            lambda: f"no ranks: {log.read_text()}",
            60,
        )
        assert process.poll() is None, log.read_text()
        yield
    finally:
        process.terminate()
        process.wait(30 * PATIENCE)


def check(folder: Path, job_id: str) -> None:
    """All ranks of the job are dumped, each from its own process, and nothing else."""
    stacks = folder / "stacks"
    words = ("--job", job_id, "-o", str(stacks), "--timeout", str(30 * PATIENCE), "--json")
    result = CliRunner().invoke(dump, words, standalone_mode=False)
    assert result.exception is None, result.exception
    document: dict[str, Any] = json.loads(result.stdout)
    assert (document["ranks"], document["world_size"]) == ("0-1", RANKS)
    assert sorted(path.name for path in stacks.iterdir()) == [
        "00000-00002.stacktrace",
        "00001-00002.stacktrace",
    ]
    for path in stacks.iterdir():
        frames = {frame.func for thread in read_dump(path).python for frame in thread.frames}
        assert "next_batch" in frames


def test_ranks_of_mpirun(tmp_path: Path) -> None:
    words = ("mpirun", "--allow-run-as-root", "--oversubscribe", "-np", str(RANKS))
    with job(tmp_path, *words):
        (job_id,) = {
            claim.partition(b"=")[2].decode()
            for path in (tmp_path / "up").iterdir()
            for claim in Path(f"/proc/{path.name}/environ").read_bytes().split(b"\0")
            if claim.startswith(b"PMIX_NAMESPACE=")
        }
        check(tmp_path, job_id)


@pytest.mark.slurm
def test_ranks_of_srun(tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    folder.mkdir()
    with (
        some_hosts(folder, 1, sshd=False) as hosts,
        a_slurm(folder / "slurm", hosts) as slurm,
        job(tmp_path, "srun", "--overcommit", "--ntasks", str(RANKS), **slurm.environ),
    ):
        check(tmp_path, slurm.run("squeue", "--noheader", "--format=%i").strip())
