"""A store outside of the job: the loss of node 0, or of the store itself, does not end the job."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from relkit.cli import run
from relkit.launch.rendezvous_store import is_open_to_others
from tests.cluster.conftest import NODE_CPU_S, Start, until
from tests.patience import PATIENCE

pytestmark = [pytest.mark.job, pytest.mark.timeout(150 * PATIENCE)]

JOB = Path(__file__).parents[1] / "jobs" / "spare_job.py"


def endpoint_of(text: str) -> str:
    return text.partition("listens on ")[2].partition(" until")[0]


def listeners(pid: int) -> set[str]:
    return {
        each.laddr.ip
        for each in psutil.Process(pid).net_connections("tcp")
        if each.status == psutil.CONN_LISTEN
    }


def test_it_listens_on_loopback_and_ends_with_sigterm(start: Start) -> None:
    store = start("store", "--port", "0")
    store.wait_for("until SIGTERM")
    host, _, port = endpoint_of(store.text).partition(":")
    assert host == "127.0.0.1"
    assert listeners(store.process.pid) == {"127.0.0.1"}
    assert f"--rdzv-endpoint 127.0.0.1:{port} --rdzv-conf is_host=0" in store.text
    assert "whoever reaches" not in store.text
    taken = start("store", "--port", port).wait()
    assert taken.code == 2
    assert "--port" in taken.err
    store.process.send_signal(signal.SIGTERM)
    done = store.wait()
    assert done.code == 0, done.err
    assert "Traceback" not in done.err


def test_what_cannot_be_listened_on_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    # In a child: it blocks signals.
    done = subprocess.run(
        [sys.executable, "-m", "relkit", "store", "--bind", "192.0.2.1"],
        capture_output=True, text=True, timeout=60 * PATIENCE, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "--bind" in done.stderr
    assert run(["store", "--port", "99999"]) == 2
    assert "99999" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("address", "is_open"),
    [("127.0.0.1", False), ("::1", False), ("127.8.0.1", False), ("0.0.0.0", True), ("h1", True)],  # noqa: S104
)
def test_what_others_can_reach(address: str, is_open: bool) -> None:
    assert is_open_to_others(address) is is_open


@pytest.mark.long
def test_the_loss_of_node_0_does_not_end_the_job(start: Start, tmp_path: Path) -> None:
    store = start("store", "--port", "0")
    store.wait_for("until SIGTERM")
    endpoint, ranks = endpoint_of(store.text), tmp_path / "ranks"
    ranks.mkdir()
    nodes = {
        name: start(
            "launch", "--nnodes", "1:2", "--rdzv-backend", "c10d", "--rdzv-id", f"o-{os.getpid()}",
            "--rdzv-endpoint", endpoint, "--rdzv-conf", "is_host=0,last_call_timeout=8",
            "--local-addr", "127.0.0.1", "--max-restarts", "3", "--nproc-per-node", "1",
            "--timeline-path", tmp_path / name, JOB, ranks, RELKIT_NODE_NAME=name,
        )
        for name in ("h1", "h2")
    }  # fmt: skip
    both = tuple(nodes.values())

    def first_node() -> str:
        return next((n for n, job in nodes.items() if "watching rank 0 of 2" in job.text), "")

    # Two launchers import torch at the same time, beside the store that has just done so.
    until(lambda: bool(first_node()), *both, timeout_s=6 * NODE_CPU_S)
    # Where one came late, the other has begun alone, and was started again.
    until(
        lambda: {path.name[:2] for path in ranks.glob("h*-*")} == nodes.keys(),
        *both,
        timeout_s=3 * NODE_CPU_S,
    )
    lost = nodes.pop(first_node())
    (left,) = nodes.values()
    lost.process.send_signal(signal.SIGKILL)
    alone = left.text.count("watching rank 0 of 1") + 1
    until(lambda: left.text.count("watching rank 0 of 1") >= alone, left, timeout_s=60)
    (ranks / "end").touch()
    done = left.wait(60)
    assert done.code == 0, done.err
    store.process.send_signal(signal.SIGTERM)
    assert store.wait().code == 0


@pytest.mark.long
def test_the_loss_of_the_store_does_not_end_the_job(start: Start, tmp_path: Path) -> None:
    store = start("store", "--port", "0")
    store.wait_for("until SIGTERM")
    ranks = tmp_path / "ranks"
    ranks.mkdir()
    jobs = [
        start(
            "launch", "--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-id", f"g-{os.getpid()}",
            "--rdzv-endpoint", endpoint_of(store.text), "--rdzv-conf", "is_host=0",
            "--local-addr", "127.0.0.1", "--nproc-per-node", "1", "--max-restarts", "1",
            "--hang-timeout", "4", "--on-hang", "report",
            "--timeline-path", tmp_path / name, JOB, ranks, RELKIT_NODE_NAME=name,
        )
        for name in ("h1", "h2")
    ]  # fmt: skip
    until(lambda: len(list(ranks.glob("h*-*"))) == 2, *jobs, timeout_s=6 * NODE_CPU_S)
    store.process.kill()
    for job in jobs:
        job.wait_for("has gone: the job goes on")
    # A verdict goes by links: the launcher of node 0 says what is wrong on the other node.
    facts = [json.loads(path.read_text()) for path in ranks.glob("h*-*")]
    (stopped,) = [each["pid"] for each in facts if each["rank"] == 1]
    os.kill(stopped, signal.SIGSTOP)
    try:
        for job in jobs:
            job.wait_for("stopped by a signal", 60)
    finally:
        os.kill(stopped, signal.SIGCONT)
    (ranks / "end").touch()
    for job in jobs:
        done = job.wait(60)
        assert done.code == 0, done.err
        assert done.err.count("has gone: the job goes on") == 1
        assert "Traceback" not in done.err
