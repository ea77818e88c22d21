"""Jobs that are started without an endpoint: a real Slurm, and pods of a job controller."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.conftest import Start
from tests.cluster.hosts import some_hosts
from tests.cluster.slurm import Slurm, a_slurm
from tests.eager import eager

pytestmark = [pytest.mark.root, pytest.mark.slurm, pytest.mark.timeout(150)]
LIMIT_S = 100.0
JOB = """
import sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
ranks = torch.ones(1)
dist.all_reduce(ranks)
sys.stdout.write(f"rank {dist.get_rank()} counts {int(ranks)}\\n")
dist.destroy_process_group()
"""
# Hosts of the test share one name, which torch would have the ranks meet at.
LAUNCHER = (
    'here=$(ip -4 -o addr show dev eth0 | sed "s/.* inet \\([0-9.]*\\).*/\\1/")\n'
    'exec "$0" -m relkit launch --local-addr "$here" --no-hook "$@"\n'
)


@pytest.fixture
def job(tmp_path: Path) -> Path:
    path = tmp_path / "job.py"
    path.write_text(JOB)
    return path


@pytest.fixture
def slurm(tmp_path: Path) -> Iterator[Slurm]:
    with some_hosts(tmp_path, 2, sshd=False) as hosts, a_slurm(tmp_path / "slurm", hosts) as slurm:
        yield slurm


@pytest.mark.long
def test_a_slurm_step(slurm: Slurm, job: Path, tmp_path: Path) -> None:
    base = {**os.environ, **slurm.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "eth0"}
    done = subprocess.run(
        [
            *("srun", "-N2", "-n2", "-p", "all", "--immediate=30"),
            *("sh", "-c", LAUNCHER, sys.executable),
            *("--nnodes", "2", "--nproc-per-node", "1"),
            *("--timeline-path", tmp_path / "timeline", job),
        ],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
        env=eager(base),
    )
    assert done.returncode == 0, done.stderr + slurm.logs()
    assert sorted(done.stdout.split("\n")) == ["", "rank 0 counts 2", "rank 1 counts 2"]
    # Slurm's names do not resolve here: the address is the one that Slurm has for the first node.
    assert done.stderr.count(f"2 nodes meet at {slurm.hosts['h1'].address}:2") == 2, done.stderr
    assert done.stderr.count("(Slurm step ") == 2


@pytest.mark.long
def test_pods_of_a_pytorch_job(start: Start, job: Path, tmp_path: Path, free_port: int) -> None:
    pods = [
        start(
            "launch", "--nnodes", "2", "--nproc-per-node", "1", "--no-hook",
            "--timeline-path", tmp_path / rank, job,
            MASTER_ADDR=host, MASTER_PORT=str(free_port), WORLD_SIZE="2", RANK=rank,
        )
        for rank, host in (("0", "localhost"), ("1", "127.0.0.1"))
    ]  # fmt: skip
    ends = [pod.wait() for pod in pods]
    assert [done.code for done in ends] == [0, 0], ends[0].err + ends[1].err
    said = sorted(line for done in ends for line in done.out.splitlines())
    assert said == ["rank 0 counts 2", "rank 1 counts 2"]
    assert f"2 nodes meet at 127.0.0.1:{free_port} (MASTER_ADDR)" in ends[1].err


def test_nodes_that_nobody_names(start: Start, job: Path) -> None:
    done = start("launch", "--nnodes", "2", job).wait()
    assert done.code == 2
    assert "2 nodes need a host where they meet" in done.err
    assert "next: Add --rdzv-backend c10d --rdzv-endpoint HOST:29400" in done.err
