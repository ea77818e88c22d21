"""A launcher without a free descriptor: its job goes on, and is looked at again afterwards."""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

import pytest

from tests.cluster.conftest import Start, Started, listens, until

pytestmark = pytest.mark.job

# Each rank says when it is up, and ends with code 0 once the pipe is opened and closed again.
_RANK = """
import sys, torch, torch.distributed as dist
from relkit.process.process_exit import leave
dist.init_process_group("gloo")
dist.all_reduce(torch.zeros(1))
sys.stdout.write("a rank is up\\n")
while True:
    ends = torch.tensor([float(dist.get_rank() == 0 and bool(open(sys.argv[1]).read()))])
    dist.all_reduce(ends)
    if ends.item():
        break
    sys.stdout.write("and on\\n")
code = int(sys.argv[2])
sys.stdout.write("a rank is done\\n")
# Not sys.exit: a thread of gloo's may abort the process as the interpreter is taken down.
leave(code if dist.get_rank() == 0 else 0)
"""


# `relkit run`, which says when it follows both ranks: only then does each of its looks open files.
_FOLLOWS = """
import sys
from relkit.launch.run_command import DeathTracker
look = DeathTracker.look
def look_and_tell(self, *returncode):
    look(self, *returncode)
    if len(self.ranks) == 2:
        DeathTracker.look = look
        print("both are followed", flush=True)
DeathTracker.look = look_and_tell
from relkit.cli import run
sys.exit(run(sys.argv[1:]))
"""


def limit(job: Started, files: int | None) -> None:
    """Have its launcher open no further file; None: as many as before."""
    _, hard = resource.prlimit(job.process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(job.process.pid, resource.RLIMIT_NOFILE, (files or hard, hard))


def say(pipe: Path, text: str) -> None:
    with pipe.open("w") as stream:
        stream.write(text)


@pytest.mark.parametrize("code", [0, 7])
def test_a_command_ends_as_it_would(start: Start, tmp_path: Path, code: int) -> None:
    script, pipe = tmp_path / "rank.py", tmp_path / "pipe"
    script.write_text(_RANK)
    follows = tmp_path / "follows.py"
    follows.write_text(_FOLLOWS)
    os.mkfifo(pipe)
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone")
    job = start(
        "run", "--hang-timeout", "600", "--timeline-path", tmp_path / "t", "--", *torchrun,
        "--nproc-per-node", "2", script, pipe, str(code),
        program=(sys.executable, str(follows)),
    )  # fmt: skip
    until(lambda: job.text.count("a rank is up") == 2, job, timeout_s=60.0)
    job.wait_for("both are followed")
    limit(job, 3)
    job.wait_for("looking at the ranks failed, which is nothing to the job: [Errno 24]")
    say(pipe, "")
    until(lambda: job.text.count("and on") >= 2, job)
    say(pipe, "end")
    end = job.wait(80)
    assert end.code == min(code, 1), end.err
    assert end.err.count("relkit: ") < 30, end.err


@pytest.mark.parametrize("code", [0, 7])
@pytest.mark.parametrize("nodes", [1, 2])
def test_a_job_ends_as_it_would(
    start: Start, tmp_path: Path, free_port: int, nodes: int, code: int
) -> None:
    script, pipe = tmp_path / "rank.py", tmp_path / "pipe"
    script.write_text(_RANK)
    os.mkfifo(pipe)
    jobs = []
    for node in range(nodes):
        jobs.append(
            start(
                "launch", "--nnodes", str(nodes), "--rdzv-backend", "c10d",
                "--rdzv-id", f"full-{os.getpid()}", "--rdzv-endpoint", f"127.0.0.1:{free_port}",
                "--nproc-per-node", "2", "--hang-timeout", "600",
                "--timeline-path", tmp_path / f"t{node}", script, pipe, str(code),
            )
        )  # fmt: skip
        # The first node to start hosts the store.
        until(lambda: listens(free_port), *jobs)
    for job in jobs:
        until(lambda job=job: job.text.count("a rank is up") == 2, job, timeout_s=60.0)  # type: ignore[misc]
        limit(job, 3)
    for job in jobs:
        job.wait_for("Too many open files")
    say(pipe, "")
    for job in jobs:
        until(lambda job=job: job.text.count("and on") >= 2, job)  # type: ignore[misc]
    say(pipe, "end")
    ends = [job.wait(80) for job in jobs]
    codes = sorted(end.code for end in ends)
    # The failing rank is one of one node.
    assert codes == [0] * (nodes - 1) + [min(code, 1)], [end.err for end in ends]
    for end in ends:
        # Each look says it once.
        assert end.err.count("relkit: ") < 30, end.err


def test_looks_go_on_once_there_are_descriptors_again(start: Start, tmp_path: Path) -> None:
    script, pipe = tmp_path / "rank.py", tmp_path / "pipe"
    script.write_text(_RANK)
    os.mkfifo(pipe)
    job = start(
        "launch", "--standalone", "--nproc-per-node", "2", "--hang-timeout", "6", "--on-hang",
        "abort", "--timeline-path", tmp_path / "t", script, pipe, "0",
    )  # fmt: skip
    until(lambda: job.text.count("a rank is up") == 2, job, timeout_s=60.0)
    limit(job, 3)
    job.wait_for("Too many open files")
    limit(job, None)
    # Rank 0 waits for its pipe, the other one for rank 0.
    done = job.wait(80)
    assert done.code == 1, done.err
    assert "rank 0" in done.err
    assert (tmp_path / "t" / "report.html").is_file()
