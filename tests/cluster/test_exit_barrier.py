"""A node whose workers are done, and another whose worker fails, in a rendezvous of c10d."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from torch._C._distributed_c10d import TCPStore

from tests.cluster.conftest import Start, Started
from tests.patience import PATIENCE

pytestmark = pytest.mark.job

# Ends at once with code 0; or, where a file is named, with code 1 as soon as that is there.
_RANK = """
import sys, time
from pathlib import Path
print("a rank runs", flush=True)
for name in sys.argv[1:]:
    while not Path(name).exists():
        time.sleep(0.05)
sys.exit(len(sys.argv) - 1)
"""


def until(condition: Callable[[], bool], *jobs: Started) -> None:
    end = time.monotonic() + 20 * PATIENCE
    while not condition():
        assert time.monotonic() < end, "\n".join(job.text for job in jobs)
        time.sleep(0.05)


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.parametrize("host_is_done", [True, False], ids=["host-done", "host-fails"])
def test_it_does_not_wait_for_the_node_that_failed(
    start: Start, tmp_path: Path, free_port: int, host_is_done: bool
) -> None:
    script, go = tmp_path / "rank.py", tmp_path / "go"
    script.write_text(_RANK)
    jobs = {}
    for is_host in (True, False):
        is_done = is_host is host_is_done
        jobs[is_done] = start(
            "launch", "--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-id", "ends",
            "--rdzv-endpoint", f"127.0.0.1:{free_port}", "--nproc-per-node", "1",
            "--timeline-path", tmp_path / f"t{is_done}", script, *(() if is_done else (go,)),
        )  # fmt: skip
        # Who comes first hosts the store.
        until(lambda: listens(free_port), *jobs.values())
    done, failed = jobs[True], jobs[False]
    store = TCPStore("127.0.0.1", free_port, None, False, timedelta(seconds=10))
    at_the_barrier = "torchelastic/agent/terminal_state"
    until(
        lambda: any(at_the_barrier in key for key in store.list_keys()) and "runs" in failed.text,
        done, failed,
    )  # fmt: skip
    go.touch()
    # torch's own barrier waits 300 s.
    assert failed.wait().code == 1
    end = done.wait()
    assert end.code == 0, end.err
