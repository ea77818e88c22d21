"""Agents over real ssh on hosts with network stacks of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from relkit.fleet.channel import Channel
from relkit.fleet.identity import same_machine
from relkit.fleet.open import open_channel
from relkit.hosts import NodeSpec, read_nodes
from tests.cluster.hosts import Hosts, some_hosts

pytestmark = [pytest.mark.root, pytest.mark.sshd]
UP_S = 30.0


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    with some_hosts(tmp_path_factory.mktemp("hosts"), 4) as hosts:
        yield hosts


@pytest.fixture
def hosts(fleet: Hosts, monkeypatch: pytest.MonkeyPatch) -> Hosts:
    monkeypatch.setenv("PATH", f"{fleet.ssh_folder}:{os.environ['PATH']}")
    return fleet


@pytest.fixture
def channel(hosts: Hosts) -> Iterator[Channel]:
    channel = open_channel("ssh", ssh_args=hosts.ssh_args)
    yield channel
    channel.close(10)


def nothing_left(hosts: Hosts, limit_s: float = 10) -> None:
    end = time.monotonic() + limit_s
    while any(hosts.processes().values()):
        assert time.monotonic() < end, hosts.processes()
        time.sleep(0.05)


def why_not(hosts: Hosts, spec: NodeSpec, *, ssh_args: str = "", relkit: str = "") -> str:
    channel = open_channel("ssh", ssh_args=ssh_args or hosts.ssh_args, relkit=relkit)
    try:
        answer = channel.start([spec], UP_S)[spec.name]
        assert not answer.answered
        return answer.detail
    finally:
        channel.close(5)
        nothing_left(hosts)


def test_all_hosts_answer_and_nothing_is_left_after_close(hosts: Hosts, channel: Channel) -> None:
    answers = channel.start(read_nodes(str(hosts.hosts_file())).nodes, UP_S)
    assert {name: a.detail for name, a in answers.items() if not a.answered} == {}
    assert same_machine(answers) == ()
    assert all(len(pids) == 1 for pids in hosts.processes().values())
    channel.send({"op": "ping", "id": 9, "to": {"h2": {}, "h3": {}}})
    heard = [channel.receive(10), channel.receive(10)]
    assert sorted(item[0] for item in heard if item) == ["h2", "h3"]
    channel.close(10)
    nothing_left(hosts)


def test_a_killed_agent_is_gone_and_the_others_are_not(hosts: Hosts, channel: Channel) -> None:
    answers = channel.start(read_nodes(str(hosts.hosts_file())).nodes, UP_S)
    os.kill(int(answers["h2"].hello["pid"]), signal.SIGKILL)
    heard = channel.receive(10)
    assert heard is not None
    assert heard[0] == "h2"
    assert heard[1]["op"] == "gone"
    assert "killed" in heard[1]["detail"]
    channel.send({"op": "ping", "id": 9})
    names = {heard[0] for _ in range(3) if (heard := channel.receive(10))}
    assert names == {"h1", "h3", "h4"}


def test_agents_end_when_the_controller_is_killed(hosts: Hosts) -> None:
    program = (
        "import sys\n"
        "from relkit.fleet.open import open_channel\n"
        "from relkit.hosts import read_nodes\n"
        "channel = open_channel('ssh', ssh_args=sys.argv[1])\n"
        "answers = channel.start(read_nodes(sys.argv[2]).nodes, 30)\n"
        "print(sum(a.answered for a in answers.values()), flush=True)\n"
        "sys.stdin.read()\n"
    )
    controller = subprocess.Popen(
        [sys.executable, "-c", program, hosts.ssh_args, str(hosts.hosts_file())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with controller:
        assert controller.stdout
        assert controller.stdout.readline() == b"4\n"
        assert all(hosts.processes().values())
        controller.kill()
    nothing_left(hosts)


def test_two_names_for_one_host_are_found_out(hosts: Hosts, channel: Channel) -> None:
    address = hosts["h1"].address
    answers = channel.start(
        [NodeSpec("one", address=address), NodeSpec("other", address=address)], UP_S
    )
    assert same_machine(answers) == (("one", "other"),)


def test_a_changed_host_key_is_named_as_such(hosts: Hosts, tmp_path: Path) -> None:
    known = hosts.known_hosts.read_text().splitlines()
    swapped = tmp_path / "known"
    swapped.write_text(f"{hosts['h1'].address} {known[1].split(' ', 1)[1]}\n")
    args = hosts.ssh_args.replace(str(hosts.known_hosts), str(swapped))
    detail = why_not(hosts, NodeSpec("h1", address=hosts["h1"].address), ssh_args=args)
    assert "not the one in known_hosts" in detail


def test_an_unknown_host_key_is_not_accepted(hosts: Hosts, tmp_path: Path) -> None:
    empty = tmp_path / "known"
    empty.write_text("")
    args = hosts.ssh_args.replace(str(hosts.known_hosts), str(empty))
    detail = why_not(hosts, NodeSpec("h1", address=hosts["h1"].address), ssh_args=args)
    assert "unknown here" in detail
    assert empty.read_text() == ""


def test_a_refused_login_is_named_as_such(hosts: Hosts) -> None:
    spec = NodeSpec("h1", address=hosts["h1"].address, user="nobody")
    assert "refused the login" in why_not(hosts, spec)


def test_a_missing_relkit_is_named_with_the_way_out(hosts: Hosts) -> None:
    spec = NodeSpec("h1", address=hosts["h1"].address)
    detail = why_not(hosts, spec, relkit="/opt/no such/relkit")
    assert "relkit is not installed there" in detail
    assert "--relkit" in detail


def test_a_name_that_does_not_resolve_is_named_as_such(hosts: Hosts) -> None:
    assert "cannot be resolved" in why_not(hosts, NodeSpec("no-such-host.invalid"))


def test_a_port_without_server_is_named_as_such(hosts: Hosts) -> None:
    spec = NodeSpec("h1", address=hosts["h1"].address, port=2222)
    assert "connection refused" in why_not(hosts, spec)


def test_a_dead_host_costs_no_more_than_its_timeout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with some_hosts(tmp_path, 2) as own:
        own.cut("h2")
        monkeypatch.setenv("PATH", f"{own.ssh_folder}:{os.environ['PATH']}")
        args = f"{own.ssh_args} -o ConnectTimeout=2"
        channel = open_channel("ssh", ssh_args=args)
        try:
            answers = channel.start(read_nodes(str(own.hosts_file())).nodes, UP_S)
            assert answers["h1"].answered
            assert not answers["h2"].answered
            assert "down" in answers["h2"].detail
        finally:
            channel.close(5)


def test_a_host_that_falls_silent_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with some_hosts(tmp_path, 2) as own:
        monkeypatch.setenv("PATH", f"{own.ssh_folder}:{os.environ['PATH']}")
        args = f"{own.ssh_args} -o ServerAliveInterval=1 -o ServerAliveCountMax=2"
        channel = open_channel("ssh", ssh_args=args)
        try:
            channel.start(read_nodes(str(own.hosts_file())).nodes, UP_S)
            own.cut("h2")
            heard = channel.receive(20)
            assert heard is not None
            assert heard[0] == "h2"
            assert "went silent" in heard[1]["detail"]
        finally:
            channel.close(5)
