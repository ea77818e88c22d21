"""Nodes with network stacks of their own are cut, killed or convicted, and a spare steps in."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from relkit.errors import EXIT_CONVICTED
from relkit.process import procfs
from tests.cluster.conftest import NODE_CPU_S, Start, Started, until
from tests.cluster.hosts import Hosts, some_hosts
from tests.patience import PATIENCE

pytestmark = [pytest.mark.job, pytest.mark.root, pytest.mark.timeout(150 * PATIENCE)]

JOB = Path(__file__).parents[1] / "jobs" / "spare_job.py"
# The bucket that limits a rate has room for 128 KiB: a small part of what a probe of 1 MiB sends.
# With a faster network it is a quarter, and a pair that a busy machine has kept waiting looks fast.
RATE_MBIT, SLOW_MBIT = 100.0, 10.0


class SpareJob:
    """Launchers, one a host; the first host has the rendezvous store.

    Args:
        nnodes: of the job; options: of `relkit launch`.
    """

    def __init__(
        self, start: Start, hosts: Hosts, folder: Path, nnodes: str, *options: str
    ) -> None:
        self._start, self._hosts, self._options = start, hosts, (*options, "--nnodes", nnodes)
        self.folder, self.launchers = folder, dict[str, Started]()
        (folder / "ranks").mkdir()

    def add(self, *names: str, **environ: str) -> None:
        for name in names:
            host = self._hosts[name]
            self.launchers[name] = self._start(
                "launch", "--rdzv-backend", "c10d", "--rdzv-id", f"spares-{os.getpid()}",
                "--rdzv-endpoint", f"{self._hosts['h1'].address}:29400",
                # Where one is missing: launchers that begin apart on a busy machine.
                "--rdzv-conf", f"is_host={int(name == 'h1')},last_call_timeout=8",
                "--local-addr", host.address, "--max-restarts", "3", "--nproc-per-node", "1",
                "--timeline-path", self.folder / f"t-{name}", *self._options, JOB,
                self.folder / "ranks",
                program=("ip", "netns", "exec", host.namespace, sys.executable, "-m", "relkit"),
                GLOO_SOCKET_IFNAME="eth0", RELKIT_NODE_NAME=name, **environ,
            )  # fmt: skip

    @property
    def text(self) -> str:
        return "\n".join(f"--- {name}\n{job.text}" for name, job in self.launchers.items())

    def trained(self) -> dict[str, dict[str, Any]]:
        """Node -> its newest rank that has finished a step."""
        files = sorted((self.folder / "ranks").glob("h*-*"), key=lambda path: path.stat().st_mtime)
        return {path.name.partition("-")[0]: json.loads(path.read_text()) for path in files}

    def trains_on(self, *names: str, world: int) -> None:
        """Wait until these nodes, and no others, are the job."""

        def is_so() -> bool:
            rows = self.trained()
            here = [rows[name] for name in names if name in rows]
            ranks = {row["rank"] for row in here if row["world"] == world}
            return ranks == set(range(world)) and all(_lives(row["pid"]) for row in here)

        until(is_so, *self.launchers.values(), timeout_s=max(20.0, NODE_CPU_S * world))

    def end(self, *without: str) -> dict[str, int]:
        """Let it end; node -> the launcher's exit code."""
        (self.folder / "ranks" / "end").touch()
        return {
            name: job.wait(60).code for name, job in self.launchers.items() if name not in without
        }


def _lives(pid: int) -> bool:
    return procfs.is_same_process(pid, 0)


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    """Five hosts of 100 Mbit/s each."""
    with some_hosts(tmp_path, 5, rate_mbit=RATE_MBIT, sshd=False) as fleet:
        yield fleet


Make = Callable[..., SpareJob]


@pytest.fixture
def job(start: Start, hosts: Hosts, tmp_path: Path) -> Make:
    def make(nnodes: str, *options: str) -> SpareJob:
        return SpareJob(start, hosts, tmp_path, nnodes, *options)

    return make


@pytest.mark.long
def test_a_node_that_is_cut_off_is_replaced(job: Make, hosts: Hosts) -> None:
    run = job("2", "--spares", "1")
    run.add("h1", "h2")
    run.trains_on("h1", "h2", world=2)
    run.add("h3")
    spare = run.launchers["h3"]
    spare.wait_for(
        "this node (h3) is a spare: it waits to take the place of any of the job's 2 nodes (h1, h2)"
    )
    hosts.cut("h2")
    run.trains_on("h1", "h3", world=2)
    why = "no sign of life for 4 s, and its host does not answer"
    line = f"node h3 takes the place of node h2 ({why})"
    assert line in run.launchers["h1"].text, run.text
    assert line in spare.text, run.text
    assert "this node (h3) steps in: the job has lost node h2" in spare.text
    assert run.end("h2") == {"h1": 0, "h3": 0}, run.text


@pytest.mark.long
def test_a_launcher_that_is_killed_is_replaced_and_a_spare_ends_with_the_job(job: Make) -> None:
    run = job("2", "--spares", "2", "--no-warm-standby")
    # What nodes know of each other is under the proof of a secret, too.
    secret = {"RELKIT_SECRET": "what only the operator knows"}
    run.add("h1", "h2", **secret)
    run.trains_on("h1", "h2", world=2)
    run.add("h3", "h4", **secret)
    for name in ("h3", "h4"):
        run.launchers[name].wait_for("is a spare: it waits")
    run.launchers["h2"].process.send_signal(signal.SIGKILL)
    used = next_to_train(run, "h3", "h4")
    codes = run.end("h2")
    assert codes == {"h1": 0, "h3": 0, "h4": 0}, run.text
    (unused,) = {"h3", "h4"} - {used}
    assert f"the job has ended, and with it this spare ({unused})" in run.launchers[unused].text
    assert "steps in" not in run.launchers[unused].text
    assert "standby" not in run.launchers[unused].text
    # Its host answers: nobody is sure of it as soon as of one that is cut off.
    line = f"node {used} takes the place of node h2 (no sign of life for 7 s)"
    assert line in run.launchers["h1"].text, run.text
    assert "Traceback" not in run.launchers[unused].text


def next_to_train(run: SpareJob, *names: str) -> str:
    """The one of these nodes that trains with the first."""
    until(lambda: any(name in run.trained() for name in names), *run.launchers.values())
    (used,) = (name for name in names if name in run.trained())
    run.trains_on("h1", used, world=2)
    return used


def test_a_launcher_that_is_asked_to_end_is_replaced_at_once(job: Make) -> None:
    run = job("2", "--spares", "1", "--no-warm-standby")
    run.add("h1", "h2")
    run.trains_on("h1", "h2", world=2)
    run.add("h3")
    run.launchers["h3"].wait_for("is a spare: it waits")
    run.launchers["h2"].process.send_signal(signal.SIGTERM)
    run.trains_on("h1", "h3", world=2)
    assert "node h3 takes the place of node h2 (its launcher got SIGTERM)" in run.text
    assert run.end() == {"h1": 0, "h2": 128 + signal.SIGTERM, "h3": 0}, run.text


@pytest.mark.long
def test_nobody_comes_in_the_place_of_a_node(job: Make) -> None:
    run = job("2", "--replacement-timeout", "12", "--no-warm-standby")
    run.add("h1", "h2")
    run.trains_on("h1", "h2", world=2)
    run.launchers["h2"].process.send_signal(signal.SIGKILL)
    done = run.launchers["h1"].wait(90)
    assert done.code == 1, run.text
    assert "the job cannot go on without node h2 (no sign of life for 7 s)" in done.err
    assert "nobody took that place within 12 s" in done.err
    # Only the worker may have died of it.
    assert all(line.startswith("[rank") for line in done.err.splitlines() if "Traceback" in line)


@pytest.mark.long
def test_a_job_goes_on_smaller_and_takes_a_new_node_in(job: Make) -> None:
    run = job("1:2", "--no-warm-standby")
    run.add("h1", "h2")
    run.trains_on("h1", "h2", world=2)
    run.launchers["h2"].process.send_signal(signal.SIGTERM)
    run.trains_on("h1", world=1)
    assert "the job goes on without node h2 (its launcher got SIGTERM)" in run.text
    run.add("h3")
    run.trains_on("h1", "h3", world=2)
    assert "node h3 joins the job" in run.launchers["h1"].text
    assert run.end("h2") == {"h1": 0, "h3": 0}, run.text


@pytest.mark.long
def test_a_job_has_a_multiple_of_the_unit_and_the_others_wait(job: Make) -> None:
    run = job("1:5", "--node_unit", "2", "--no-warm-standby")
    run.add("h1", "h2")
    run.trains_on("h1", "h2", world=2)
    assert "the job has 2 to 4 nodes, a multiple of 2 (--node-unit)" in run.text
    first = run.trained()["h1"]["pid"]
    run.add("h3")
    alone = "this node (h3) is a spare: the job has 2 nodes and grows by 2 at a time (--node-unit)"
    run.launchers["h3"].wait_for(alone)
    # Nobody was disturbed.
    assert run.trained()["h1"]["pid"] == first
    run.add("h4")
    run.trains_on("h1", "h2", "h3", "h4", world=4)
    run.launchers["h4"].process.send_signal(signal.SIGKILL)

    def in_the_pair() -> list[str]:
        return [name for name in ("h2", "h3") if run.trained()[name]["world"] == 2]

    until(lambda: bool(in_the_pair()), *run.launchers.values())
    (other,) = in_the_pair()
    run.trains_on("h1", other, world=2)
    (left,) = {"h2", "h3"} - {other}
    why = "it waits: 2 nodes are a multiple of --node-unit 2"
    assert f"the job goes on without node {left} ({why})" in run.launchers["h1"].text, run.text
    run.launchers[left].wait_for(f"this node ({left}) is a spare: the job has 2 nodes and grows")
    assert run.end("h4") == {"h1": 0, "h2": 0, "h3": 0}, run.text


@pytest.mark.long
def test_a_nic_that_became_slow_is_found_after_a_failure_and_its_node_is_replaced(
    job: Make, hosts: Hosts
) -> None:
    run = job("4", "--spares", "1", "--network-check", "--exclude-straggler", "--no-warm-standby")
    run.add("h1", "h2", "h3", "h4")
    run.trains_on("h1", "h2", "h3", "h4", world=4)
    assert "4 nodes, no fault" in run.text
    run.add("h5")
    run.launchers["h5"].wait_for("is a spare: it waits")
    hosts.limit("h3", out_mbit=SLOW_MBIT, in_mbit=SLOW_MBIT)
    # Another node's rank: the slow NIC itself ends nobody.
    os.kill(run.trained()["h2"]["pid"], signal.SIGKILL)
    run.trains_on("h1", "h2", "h4", "h5", world=4)
    convicted = run.launchers["h3"].wait(60)
    assert convicted.code == EXIT_CONVICTED, run.text
    assert "this node (h3) failed the network check and leaves the job: slow" in convicted.err
    assert "node h5 takes the place of node h3 (slow" in run.launchers["h1"].text, run.text
    assert run.end("h3") == {"h1": 0, "h2": 0, "h4": 0, "h5": 0}, run.text


@pytest.mark.long
def test_a_node_on_which_every_failure_begins_is_given_up(job: Make) -> None:
    run = job("2", "--spares", "1", "--node-restarts", "2", "--no-warm-standby")
    run.add("h1", "h2")
    run.trains_on("h1", "h2", world=2)
    run.add("h3")
    run.launchers["h3"].wait_for("is a spare: it waits")
    first = run.trained()["h2"]["pid"]
    os.kill(first, signal.SIGKILL)
    until(lambda: run.trained()["h2"]["pid"] != first, *run.launchers.values())
    run.trains_on("h1", "h2", world=2)
    os.kill(run.trained()["h2"]["pid"], signal.SIGKILL)
    run.trains_on("h1", "h3", world=2)
    given_up = run.launchers["h2"].wait(60)
    assert given_up.code == EXIT_CONVICTED, run.text
    why = "its workers failed first 2 times in a row (--node-restarts 2)"
    assert f"this node (h2) leaves the job: {why}" in given_up.err
    assert f"node h3 takes the place of node h2 ({why})" in run.launchers["h1"].text
    # The spare counts the job's restarts, not its own.
    assert run.trained()["h3"]["restarts"] == run.trained()["h1"]["restarts"] > 0
    assert run.end("h2") == {"h1": 0, "h3": 0}, run.text
