"""The host of the rendezvous store neither answers nor goes, as behind a cut network."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.cluster.conftest import Start, listens, report_of, until
from tests.eager import eager

pytestmark = pytest.mark.job

# Fails as soon as somebody opens the other end of a pipe.
_RANK = """
import sys
print("a rank runs", flush=True)
open(sys.argv[1])
sys.exit(1)
"""
_LED, _ALONE = "leads the watch over the job", "this node judges only its own ranks"
# Left alone, torch waits for minutes.
_SOON_S = 25.0


@pytest.mark.long
def test_other_launchers_report_a_failure_and_end_by_a_signal(
    start: Start, tmp_path: Path, free_port: int
) -> None:
    script = tmp_path / "rank.py"
    script.write_text(_RANK)
    pipes = [tmp_path / f"fail{number}" for number in range(3)]
    jobs = []
    for number, pipe in enumerate(pipes):
        os.mkfifo(pipe)
        job = start(
            "launch", "--nnodes", "3", "--rdzv-backend", "c10d",
            "--rdzv-id", f"stopped-{os.getpid()}",
            "--rdzv-endpoint", f"127.0.0.1:{free_port}", "--nproc-per-node", "1",
            "--timeline-path", tmp_path / f"t{number}", script, pipe,
        )  # fmt: skip
        jobs.append(job)
        # The first node to start hosts the store.
        until(lambda: listens(free_port), *jobs)
    for job in jobs:
        job.wait_for("a rank runs")
    host, failing, signalled = jobs
    host.process.send_signal(signal.SIGSTOP)
    os.waitpid(host.process.pid, os.WUNTRACED)
    try:
        # Or their links are not made yet, and each is on its own.
        for job in (failing, signalled):
            until(
                lambda text=job: any(line in text.text for line in (_LED, _ALONE)),  # type: ignore[misc]
                *jobs,
            )
        signalled.process.send_signal(signal.SIGTERM)
        # Opened for reading as well, so that this does not wait for the rank.
        with pipes[1].open("r+b", buffering=0):
            failed, ended = failing.wait(_SOON_S), signalled.wait(_SOON_S)
    finally:
        host.process.send_signal(signal.SIGCONT)
    assert failed.code == 1, failed.err
    assert (tmp_path / "t1" / "report.json").exists(), failed.err
    assert report_of(tmp_path / "t1")["culprits"], failed.err
    assert ended.code == 128 + signal.SIGTERM, ended.err


_STORE = """
import sys, torch.distributed as d
store = d.TCPStore("127.0.0.1", 0, None, True)
print(store.port, flush=True)
sys.stdin.read()
"""


@pytest.mark.long
def test_ctrl_c_ends_a_launcher_whose_store_accepts_and_says_nothing(
    start: Start, tmp_path: Path
) -> None:
    script = tmp_path / "rank.py"
    script.write_text(_RANK)
    with subprocess.Popen(
        [sys.executable, "-c", _STORE],
        env=eager(os.environ),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as store:
        try:
            assert store.stdout is not None
            port = int(store.stdout.readline())
            store.send_signal(signal.SIGSTOP)
            os.waitpid(store.pid, os.WUNTRACED)
            job = start(
                "launch", "--nnodes", "2", "--rdzv-backend", "c10d",
                "--rdzv-id", f"silent-{os.getpid()}",
                "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-conf", "is_host=0",
                "--nproc-per-node", "1", "--timeline-path", tmp_path / "t", script,
            )  # fmt: skip
            process = psutil.Process(job.process.pid)
            until(
                lambda: any(
                    each.raddr and each.raddr.port == port for each in process.net_connections()
                ),
                job,
            )
            job.process.send_signal(signal.SIGINT)
            done = job.wait(_SOON_S)
        finally:
            store.kill()
    assert done.code == 128 + signal.SIGINT, done.err
    assert "Traceback" not in done.err
