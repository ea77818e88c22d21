"""The test hosts themselves: the rates that other tests rely on are the rates that there are."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.cluster.hosts import Hosts, some_hosts

pytestmark = pytest.mark.root

RATE = 80.0
_RECEIVE = """
import socket, sys, time
listener = socket.create_server((sys.argv[1], 7000))
listener.settimeout(10)
print("ready", flush=True)
stream, _ = listener.accept()
stream.settimeout(10)
began, size, late, last = 0.0, 0, 0, 0.0
while data := stream.recv(1 << 18):
    last = time.monotonic()
    began = began or last
    size += len(data)
    # The token bucket's first filling is not the rate.
    if last - began > 0.2:
        late = late or size
        mark = locals().get("mark") or last
print((size - late) * 8 / 1e6 / (last - mark))
"""
_SEND = """
import socket, sys, time
stream = socket.create_connection((sys.argv[1], 7000), 3)
stream.settimeout(10)
end = time.monotonic() + 0.9
while time.monotonic() < end:
    stream.sendall(bytes(1 << 16))
"""


@pytest.fixture
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    with some_hosts(tmp_path_factory.mktemp("hosts"), 4, rate_mbit=RATE, sshd=False) as hosts:
        yield hosts


def rate_mbit(hosts: Hosts, source: str, target: str) -> float:
    """Measured by plain sockets; 0 where no connection came about."""
    inside = ("ip", "netns", "exec")
    address = hosts[target].address
    receiver = subprocess.Popen(
        [*inside, hosts[target].namespace, sys.executable, "-c", _RECEIVE, address],
        stdout=subprocess.PIPE,
        text=True,
    )
    with receiver:
        assert receiver.stdout
        assert receiver.stdout.readline() == "ready\n"
        done = subprocess.run(
            [*inside, hosts[source].namespace, sys.executable, "-c", _SEND, address],
            capture_output=True,
            timeout=30,
            check=False,
        )
        if done.returncode:
            receiver.kill()
            return 0.0
        return float(receiver.stdout.readline())


def test_every_host_has_its_rate_and_single_ones_less(hosts: Hosts) -> None:
    assert rate_mbit(hosts, "h1", "h2") == pytest.approx(RATE, rel=0.15)
    hosts.limit("h1", out_mbit=20)
    assert rate_mbit(hosts, "h1", "h2") == pytest.approx(20, rel=0.15)
    assert rate_mbit(hosts, "h2", "h1") == pytest.approx(RATE, rel=0.15)
    hosts.limit("h2", in_mbit=30)
    assert rate_mbit(hosts, "h3", "h2") == pytest.approx(30, rel=0.15)


def test_a_pair_is_slow_or_cut_and_its_ends_are_not(hosts: Hosts) -> None:
    hosts.limit_pair("h1", "h2", 20)
    assert rate_mbit(hosts, "h1", "h2") == pytest.approx(20, rel=0.15)
    assert rate_mbit(hosts, "h2", "h1") == pytest.approx(20, rel=0.15)
    assert rate_mbit(hosts, "h1", "h3") == pytest.approx(RATE, rel=0.15)
    hosts.cut_pair("h3", "h4")
    assert rate_mbit(hosts, "h3", "h4") == 0
    assert rate_mbit(hosts, "h3", "h2") == pytest.approx(RATE, rel=0.15)


def test_an_uplink_is_slow_and_both_its_sides_are_not(hosts: Hosts) -> None:
    hosts.limit_across(["h3", "h4"], 20)
    assert rate_mbit(hosts, "h1", "h3") == pytest.approx(20, rel=0.15)
    assert rate_mbit(hosts, "h4", "h2") == pytest.approx(20, rel=0.15)
    assert rate_mbit(hosts, "h3", "h4") == pytest.approx(RATE, rel=0.15)
    assert rate_mbit(hosts, "h1", "h2") == pytest.approx(RATE, rel=0.15)
