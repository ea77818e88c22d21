"""Try-to-persist between network stacks: launchers killed, a link cut, one node preempted."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from relkit.checkpoint.iteration_folder import TRACKER, half_written
from relkit.process import procfs
from tests.cluster.conftest import Start, Started, free_port, orphans_come_to_us, start
from tests.cluster.hosts import Hosts, some_hosts
from tests.ttp.test_ddp_faults import JOB, losses

__all__ = ["free_port", "orphans_come_to_us", "start"]
pytestmark = [pytest.mark.job, pytest.mark.timeout(150)]

Fleet = Callable[[int], Hosts]


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    made: list[AbstractContextManager[Hosts]] = []

    def make(count: int) -> Hosts:
        made.append(some_hosts(tmp_path, count, sshd=False))
        return made[-1].__enter__()

    yield make
    for each in made:
        each.__exit__(None, None, None)


def launch(
    start: Start, hosts: Hosts, folder: Path, number: int, each: int, *options: str
) -> Started:
    """One node's launcher; all share the folder of checkpoints."""
    host, first = hosts.hosts[number], hosts.hosts[0]
    return start(
        "launch", "--nnodes", str(len(hosts.hosts)), "--node-rank", str(number),
        "--master-addr", first.address, "--master-port", "29400",
        "--nproc-per-node", str(each), "--local-addr", host.address,
        "--timeline-path", folder / f"t{number}", *options, JOB, folder / "ck", "100000", "",
        program=("ip", "netns", "exec", host.namespace, sys.executable, "-m", "relkit"),
        GLOO_SOCKET_IFNAME="eth0", RELKIT_NODE_NAME=host.name,
    )  # fmt: skip


def running(start: Start, hosts: Hosts, folder: Path, each: int, *options: str) -> list[Started]:
    """All nodes, some steps into training."""
    numbers = range(len(hosts.hosts))
    jobs = [launch(start, hosts, folder, number, each, *options) for number in numbers]
    for number, job in enumerate(jobs):
        job.wait_for(f"rank {number * each} step 5 ")
    return jobs


def saved_step(folder: Path) -> int:
    assert half_written(folder / "ck") == ()
    return int((folder / "ck" / TRACKER).read_text())


@pytest.mark.long
def test_a_launcher_is_killed_and_the_other_node_saves(
    start: Start, tmp_path: Path, fleet: Fleet
) -> None:
    jobs = running(start, fleet(2), tmp_path, 2)
    os.kill(jobs[1].process.pid, signal.SIGKILL)
    done = jobs[0].wait(60)
    assert done.code == 75, done.err
    assert jobs[1].wait(20).code == -signal.SIGKILL
    seen = max(step for _, step in losses(done))
    # At most the one step more whose gradients all had.
    assert saved_step(tmp_path) in (seen, seen + 1)


@pytest.mark.long
def test_the_first_launcher_is_killed_and_a_backup_leads(
    start: Start, tmp_path: Path, fleet: Fleet
) -> None:
    jobs = running(start, fleet(3), tmp_path, 1)
    os.kill(jobs[0].process.pid, signal.SIGKILL)
    others = [job.wait(60) for job in jobs[1:]]
    assert [done.code for done in others] == [75, 75], others[0].err + others[1].err
    assert "it began when the controller is gone" in others[0].err
    assert saved_step(tmp_path) >= 5


@pytest.mark.long
def test_less_than_a_majority_must_not_decide(start: Start, tmp_path: Path, fleet: Fleet) -> None:
    # A backup waits a sixth of this for others to come.
    jobs = running(start, fleet(2), tmp_path, 1, "--ttp-timeout", "30")
    # The kernel closes a killed launcher's connections before it ends its rank, which could still
    # come to the backup in between, and make it a majority.
    for pid in procfs.descendants(jobs[0].process.pid):
        os.kill(pid, signal.SIGSTOP)
    os.kill(jobs[0].process.pid, signal.SIGKILL)
    done = jobs[1].wait(60)
    assert done.code == 76, done.err
    assert "which needs a majority to decide" in done.err
    assert not (tmp_path / "ck" / TRACKER).exists()


@pytest.mark.long
def test_the_link_between_two_nodes_is_cut(start: Start, tmp_path: Path, fleet: Fleet) -> None:
    hosts = fleet(2)
    jobs = running(start, hosts, tmp_path, 1, "--ttp-timeout", "30")
    hosts.cut("h2")
    first, second = (job.wait(90) for job in jobs)
    assert first.code == 75, first.err
    assert second.code == 76, second.err
    assert "rank 1 was silent for 3 s" in first.err
    seen = max(step for _, step in losses(first))
    assert saved_step(tmp_path) in (seen, seen + 1)


@pytest.mark.long
def test_one_node_is_preempted_and_all_are_saved(
    start: Start, tmp_path: Path, fleet: Fleet
) -> None:
    jobs = running(start, fleet(2), tmp_path, 1)
    jobs[1].process.send_signal(signal.SIGTERM)
    first, second = (job.wait(60) for job in jobs)
    assert first.code == 75, first.err
    assert second.code == 75, second.err
    steps = {max(step for _, step in losses(done)) for done in (first, second)}
    assert steps == {saved_step(tmp_path)}
    assert "the launcher got SIGTERM" in first.err


@pytest.mark.long
def test_two_nodes_go_on_after_a_kill(start: Start, tmp_path: Path, free_port: int) -> None:
    def node(number: int, folder: Path, deeds: str) -> Started:
        # The same bits, and no key of an earlier meeting in the way after the restart.
        secret = {"RELKIT_SECRET": "what only the operator knows"} if deeds else {}
        return start(
            "launch", "--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-id", folder.name,
            "--rdzv-endpoint", f"127.0.0.1:{free_port}", "--local-addr", "127.0.0.1",
            "--nproc-per-node", "1", "--max-restarts", "2", "--no-warm-standby", "--timeline-path",
            tmp_path / f"{folder.name}{number}", JOB, folder / "ck", "40", deeds, **secret,
        )  # fmt: skip

    found = []
    for name, deeds in (("plain", ""), ("killed", "run=0:rank=1:step=9:deed=kill")):
        done = [job.wait(100) for job in [node(n, tmp_path / name, deeds) for n in range(2)]]
        assert [each.code for each in done] == [0, 0], done[0].err + done[1].err
        found.append({**losses(done[0]), **losses(done[1])})
    assert len(found[0]) == 80
    assert found[0] == found[1]
    assert "step 8 was saved" in done[0].err + done[1].err
