"""A c10d job of two nodes: the workers of one are done, a worker of the other fails."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import psutil
import pytest

from tests.cluster.conftest import Start, Started, listens, until

pytestmark = pytest.mark.job

# Exits with 0 at once; where a pipe is named, with 1 as soon as its other end is opened.
_RANK = """
import sys
print("a rank runs", flush=True)
for name in sys.argv[1:]:
    open(name)
sys.exit(len(sys.argv) - 1)
"""


def ranks_of(launcher: Started) -> list[psutil.Process]:
    return psutil.Process(launcher.process.pid).children(recursive=True)


@pytest.mark.long
@pytest.mark.parametrize("host_is_done", [True, False], ids=["host-done", "host-fails"])
def test_a_node_that_is_done_does_not_wait_for_one_that_failed(
    start: Start, tmp_path: Path, free_port: int, host_is_done: bool
) -> None:
    script, go = tmp_path / "rank.py", tmp_path / "go"
    script.write_text(_RANK)
    os.mkfifo(go)
    jobs = {}
    for is_host in (True, False):
        is_done = is_host is host_is_done
        jobs[is_done] = start(
            "launch", "--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-id", f"ends-{os.getpid()}",
            "--rdzv-endpoint", f"127.0.0.1:{free_port}", "--nproc-per-node", "1",
            "--timeline-path", tmp_path / f"t{is_done}", script, *(() if is_done else (go,)),
        )  # fmt: skip
        # The first node to start hosts the store.
        until(lambda: listens(free_port), *jobs.values())
    done, failed = jobs[True], jobs[False]
    until(
        lambda: "runs" in done.text and "runs" in failed.text and not ranks_of(done), done, failed
    )
    # Opened for reading as well, so that this does not wait for the rank.
    with go.open("r+b", buffering=0):
        assert failed.wait().code == 1
    # torch's own barrier waits 300 s.
    finished = done.wait()
    assert finished.code == 0, finished.err


# A launcher that is slow to leave: what it still asks the store for comes late.
_LATE = """
import sys, time
import torch.distributed.elastic.rendezvous.dynamic_rendezvous as torchs
leave = torchs.DynamicRendezvousHandler.shutdown
def shutdown(self):
    time.sleep(1.5)
    return leave(self)
torchs.DynamicRendezvousHandler.shutdown = shutdown
from relkit.cli import run
sys.exit(run(sys.argv[1:]))
"""


@pytest.mark.long
def test_a_good_job_ends_without_a_word_of_torchs(
    start: Start, tmp_path: Path, free_port: int
) -> None:
    script, late = tmp_path / "rank.py", tmp_path / "late.py"
    script.write_text(_RANK)
    late.write_text(_LATE)
    jobs = []
    for node in range(2):
        program = (sys.executable, str(late)) if node else ()
        jobs.append(
            start(
                "launch", "--nnodes", "2", "--rdzv-backend", "c10d",
                "--rdzv-id", f"good-{os.getpid()}", "--rdzv-endpoint", f"127.0.0.1:{free_port}",
                "--nproc-per-node", "1", "--timeline-path", tmp_path / f"t{node}", script,
                program=program,
            )
        )  # fmt: skip
        # The first node to start hosts the store.
        until(lambda: listens(free_port), *jobs)
    for done in [job.wait() for job in jobs]:
        assert done.code == 0, done.err
        assert "frame #" not in done.err
        assert "TCPStore" not in done.err
