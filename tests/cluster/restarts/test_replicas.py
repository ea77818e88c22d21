"""Hosts with network stacks, boot ids and shared memory of their own: one of them is lost."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.cluster.conftest import Start, Started, until
from tests.cluster.hosts import Hosts, some_hosts
from tests.eager import eager
from tests.patience import PATIENCE

pytestmark = [pytest.mark.job, pytest.mark.root, pytest.mark.timeout(150 * PATIENCE)]

JOB = Path(__file__).parents[1] / "jobs" / "replica_job.py"
_LOSS = re.compile(r"^rank (\d+) step (\d+) loss (\S+)$", re.MULTILINE)
_FROM = re.compile(r"flash checkpoint: step (\d+) (from memory .*)")
FIRST = "has its first replicas on other hosts"
STEPS = 10_000
SECRET = {"RELKIT_SECRET": "what only the operator knows"}


class ReplicaJob:
    """Launchers, one a host; the first host has the rendezvous store."""

    def __init__(self, start: Start, hosts: Hosts, folder: Path, *options: str) -> None:
        self._start, self._hosts, self._options = start, hosts, options
        self.folder, self.launchers = folder, dict[str, Started]()

    def add(self, *names: str, shm_bytes: int = 64 << 20, environ: Mapping[str, str] = {}) -> None:
        for name in names:
            host = self._hosts[name]
            boot_id = self.folder / f"boot-id-{name}"
            boot_id.write_text(f"{uuid.uuid4()}\n")
            own = (
                f"mount -t tmpfs -o size={shm_bytes} relkit-test /dev/shm"
                f" && mount --bind {boot_id} /proc/sys/kernel/random/boot_id"
                ' && exec "$@"'
            )
            self.launchers[name] = self._start(
                "launch", "--rdzv-backend", "c10d", "--rdzv-id", f"replicas-{os.getpid()}",
                "--rdzv-endpoint", f"{self._hosts['h1'].address}:29400",
                "--rdzv-conf", f"is_host={int(name == 'h1')},last_call_timeout=8",
                "--local-addr", host.address, "--max-restarts", "3", "--nproc-per-node", "2",
                "--no-warm-standby", "--replica-count", "1",
                "--timeline-path", self.folder / f"t-{name}", *self._options,
                JOB, self.folder, str(STEPS),
                program=("ip", "netns", "exec", host.namespace, "unshare", "--mount", "sh", "-c",
                         own, "sh", sys.executable, "-m", "relkit"),
                GLOO_SOCKET_IFNAME="eth0", RELKIT_NODE_NAME=name, **environ,
            )  # fmt: skip

    @property
    def text(self) -> str:
        return "\n".join(f"--- {name}\n{job.text}" for name, job in self.launchers.items())

    def steps_on(self, name: str) -> list[int]:
        file = self.folder / f"losses-{name}"
        text = file.read_text() if file.exists() else ""
        return [int(step) for _, step, _ in _LOSS.findall(text)]

    def trains_past(self, step: int, *names: str) -> None:
        """Wait until each of these nodes has finished a step."""
        until(
            lambda: all(max(self.steps_on(name), default=-1) > step for name in names),
            *(self.launchers[name] for name in names),
        )

    def losses(self) -> dict[tuple[int, int], str]:
        """(rank, step) -> loss; a step that was repeated must have given the same."""
        seen: dict[tuple[int, int], str] = {}
        for file in self.folder.glob("losses-*"):
            for rank, step, loss in _LOSS.findall(file.read_text()):
                key = int(rank), int(step)
                assert seen.setdefault(key, loss) == loss, f"{key} differs after a restart"
        return seen

    def undisturbed(self) -> dict[tuple[int, int], str]:
        """The losses of as many steps of a job on one host that nothing happens to."""
        last = max(step for _, step in self.losses())
        alone = self.folder / "undisturbed"
        alone.mkdir()
        done = subprocess.run(
            [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4",
             str(JOB), str(alone), str(last), "0"],
            env=eager({**os.environ, "OMP_NUM_THREADS": "1", "RELKIT_NODE_NAME": "alone"}),
            capture_output=True, text=True, timeout=60 * PATIENCE, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        text = (alone / "losses-alone").read_text()
        return {(int(rank), int(step)): loss for rank, step, loss in _LOSS.findall(text)}

    def end(self, *without: str) -> dict[str, int]:
        """Let it end; node -> the launcher's exit code."""
        (self.folder / "end").touch()
        return {
            name: job.wait(60).code for name, job in self.launchers.items() if name not in without
        }


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    """Three hosts of 200 Mbit/s each."""
    with some_hosts(tmp_path, 3, rate_mbit=200.0, sshd=False) as fleet:
        yield fleet


@pytest.fixture
def job(start: Start, hosts: Hosts, tmp_path: Path) -> Callable[..., ReplicaJob]:
    def make(*options: str) -> ReplicaJob:
        return ReplicaJob(start, hosts, tmp_path, *options)

    return make


@pytest.mark.long
@pytest.mark.parametrize("how", ["cut", "killed"])
def test_the_ranks_of_a_lost_host_start_from_a_replica(
    job: Callable[..., ReplicaJob], hosts: Hosts, how: str
) -> None:
    run = job("--nnodes", "2", "--spares", "1")
    run.add("h1", "h2", environ=SECRET)
    run.launchers["h1"].wait_for(FIRST, 60)
    assert "flash checkpoint: replicas of ranks 2-3 go to h1" in run.text, run.text
    run.add("h3", environ=SECRET)
    run.launchers["h3"].wait_for("is a spare: it waits")
    run.trains_past(max(run.steps_on("h2")) + 10, "h2")
    if how == "cut":
        hosts.cut("h2")
    else:
        run.launchers["h2"].process.send_signal(signal.SIGKILL)
    run.launchers["h3"].wait_for("steps in", 60)
    reached = max(run.steps_on("h1"))
    run.trains_past(reached + 5, "h1", "h3")
    ((step, words),) = _FROM.findall(run.launchers["h1"].text)
    assert words == "from memory (ranks 0-1) and from replicas on h1 (ranks 2-3)", run.text
    assert 0 < int(step) <= reached
    # It began there, and not anew; every step that was made again gave the same.
    assert min(run.steps_on("h3")) == int(step) + 1
    report = json.loads((run.folder / "t-h1" / "flash_replicas.json").read_text())
    assert report["step"] == int(step)
    assert report["findings"][0]["id"] == "RK-FLASH-006"
    # The next round went to the node that came.
    assert run.launchers["h1"].text.count("go to h3") == 1
    assert run.end("h2") == {"h1": 0, "h3": 0}, run.text
    assert run.losses() == run.undisturbed()


@pytest.mark.long
def test_a_receiver_without_room_says_so_and_the_job_is_unharmed(
    job: Callable[..., ReplicaJob],
) -> None:
    run = job("--nnodes", "2")
    run.add("h1")
    # Room for the slots of its own two ranks, and for little more.
    run.add("h2", shm_bytes=400 << 10)
    run.launchers["h1"].wait_for("has no replica on h2: no room in /dev/shm/", 60)
    assert re.search(r"rank 0 has no replica on h2: .* [\d,]+ bytes are needed", run.text)
    before = max(run.steps_on("h1"))
    run.trains_past(before + 5, "h1", "h2")
    assert run.end() == {"h1": 0, "h2": 0}, run.text
    assert "is not saved" not in run.text
    assert len(set(run.losses())) == 4 * max(run.steps_on("h1"))


@pytest.mark.long
def test_two_launchers_on_one_host_are_no_replica_of_each_other(
    start: Start, tmp_path: Path, free_port: int
) -> None:
    nodes = [
        start("launch", "--nnodes", "2", "--nproc-per-node", "1", "--rdzv-id", f"one-{os.getpid()}",
              "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{free_port}",
              "--replica-count", "1", "--timeline-path", tmp_path / f"timeline{node}",
              JOB, tmp_path, "5", RELKIT_NODE_NAME=f"n{node}")
        for node in range(2)
    ]  # fmt: skip
    for done in [node.wait(90) for node in nodes]:
        assert done.code == 0, done.err
        line = r"ranks [01] have 0 replicas instead of 1: the job has 1 hosts; n[01] shares this"
        assert re.search(line, done.err), done.err
