"""Agents in one job step of a real Slurm: four slurmd, each in a host of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from relkit.fleet.channel import Channel
from relkit.fleet.open import open_channel
from relkit.hosts import read_nodes
from tests.cluster.hosts import some_hosts
from tests.cluster.slurm import Slurm, a_slurm

pytestmark = [pytest.mark.root, pytest.mark.slurm]
UP_S = 30.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    folder = tmp_path_factory.mktemp("slurm")
    with some_hosts(folder, 4, sshd=False) as hosts, a_slurm(folder / "slurm", hosts) as slurm:
        yield slurm


@pytest.fixture
def slurm(cluster: Slurm, monkeypatch: pytest.MonkeyPatch) -> Iterator[Slurm]:
    for name, value in cluster.environ.items():
        monkeypatch.setenv(name, value)
    daemons = cluster.hosts.processes()
    yield cluster
    end = time.monotonic() + 10
    while cluster.hosts.processes() != daemons or cluster.run("squeue", "-h").strip():
        assert time.monotonic() < end, (cluster.hosts.processes(), cluster.run("squeue"))
        time.sleep(0.05)


@pytest.fixture
def channel(slurm: Slurm) -> Iterator[Channel]:
    channel = open_channel("slurm", partition="all")
    yield channel
    channel.close(10)


def test_one_step_carries_all_agents_and_long_lines_stay_whole(channel: Channel) -> None:
    answers = channel.start(read_nodes("h[1-4]").nodes, UP_S)
    assert {name: a.detail for name, a in answers.items() if not a.answered} == {}
    # Four errors of some ten thousand bytes each, at the same time.
    channel.send({"op": "long" * 1500, "id": 3})
    heard = [channel.receive(10) for _ in range(4)]
    assert sorted(item[0] for item in heard if item) == ["h1", "h2", "h3", "h4"]
    assert all(item[1]["request"] == "long" * 1500 for item in heard if item)


def test_a_request_reaches_only_those_it_names(channel: Channel) -> None:
    channel.start(read_nodes("h[2-3]").nodes, UP_S)
    channel.send({"op": "ping", "id": 1, "to": {"h3": {}}})
    heard = channel.receive(10)
    assert heard is not None
    assert heard[0] == "h3"
    assert channel.receive(0.3) is None


def test_a_killed_agent_is_gone_and_the_others_are_not(channel: Channel) -> None:
    answers = channel.start(read_nodes("h[1-4]").nodes, UP_S)
    os.kill(int(answers["h2"].hello["pid"]), signal.SIGKILL)
    heard = channel.receive(10)
    assert heard is not None
    assert heard[0] == "h2"
    assert heard[1]["op"] == "gone"
    assert "Killed" in heard[1]["detail"]
    channel.send({"op": "ping", "id": 9})
    names = {heard[0] for _ in range(3) if (heard := channel.receive(10))}
    assert names == {"h1", "h3", "h4"}


def test_nodes_that_slurm_does_not_have_or_trust_are_told(slurm: Slurm, channel: Channel) -> None:
    slurm.run("scontrol", "update", "nodename=h4", "state=down", "reason=test")
    try:
        answers = channel.start(read_nodes("h[1,4],elsewhere").nodes, UP_S)
    finally:
        slurm.run("scontrol", "update", "nodename=h4", "state=resume")
    assert answers["h1"].answered, answers["h1"].detail
    assert "Slurm reports it as down" in answers["h4"].detail
    assert "no node of this name" in answers["elsewhere"].detail


def test_a_missing_relkit_is_named_with_the_way_out(slurm: Slurm) -> None:
    channel = open_channel("slurm", partition="all", relkit="/opt/no/relkit")
    try:
        answers = channel.start(read_nodes("h[1-2]").nodes, UP_S)
        assert all("relkit is not installed there" in a.detail for a in answers.values())
    finally:
        channel.close(5)


def test_srun_s_own_refusal_is_passed_on(slurm: Slurm) -> None:
    channel = open_channel("slurm", partition="nowhere")
    try:
        answers = channel.start(read_nodes("h1").nodes, UP_S)
        assert "invalid partition" in answers["h1"].detail.lower()
    finally:
        channel.close(5)


def test_inside_an_allocation_its_nodes_are_the_default(slurm: Slurm) -> None:
    program = (
        "import json\n"
        "from relkit.fleet.open import open_channel\n"
        "from relkit.hosts import NodeSpec, default_nodes\n"
        "channel = open_channel('slurm')\n"
        "try:\n"
        "    answers = channel.start((*default_nodes().nodes, NodeSpec('h4')), 30)\n"
        "    print(json.dumps({n: a.detail or 'up' for n, a in answers.items()}))\n"
        "finally:\n"
        "    channel.close(10)\n"
    )
    done = subprocess.run(
        [
            "salloc",
            "-N3",
            "-w",
            "h[1-3]",
            "-p",
            "all",
            "--immediate=20",
            sys.executable,
            "-c",
            program,
        ],
        capture_output=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    answers = json.loads(done.stdout.splitlines()[-1])
    assert answers.pop("h4") == "is not part of this Slurm job"
    assert answers == dict.fromkeys(("h1", "h2", "h3"), "up")
