"""relkit netcheck over real ssh: bounds from outside the fleet, and a stranger at the door."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.hosts import Hosts, some_hosts
from tests.cluster.netcheck.conftest import RATE_MBIT, Check

pytestmark = [pytest.mark.root, pytest.mark.timeout(120)]


# Knocks at every port of a range of some hosts, over and over, as a port scanner does, and says
# what it thinks of whoever opens. Prints one line for each open door.
SCANNER = """
import socket, sys
low, high, addresses = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
print("scanning", flush=True)
while True:
    for address in addresses:
        for port in range(low, high):
            with socket.socket() as door:
                door.settimeout(0.5)
                if door.connect_ex((address, port)) == 0:
                    try:
                        door.sendall(b"GET / HTTP/1.0\\r\\n\\r\\n" + bytes(64))
                        heard = door.recv(64)
                    except OSError:
                        heard = b""
                    print("open", address, port, heard[:8], flush=True)
"""
PORTS = (40000, 40400)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Hosts]:
    """Four hosts of 200 Mbit/s each, with their own ssh servers."""
    with some_hosts(tmp_path, 4, rate_mbit=RATE_MBIT) as hosts:
        yield hosts


def verdict(nodes: list[str], links: list[list[str]]) -> dict[str, Any]:
    return {"nodes": nodes, "links": links, "groups": []}


@pytest.mark.long
def test_a_port_scanner_is_refused_counted_and_reported(check: Check, fleet: Hosts) -> None:
    for host in fleet.hosts:
        fleet.own_ports(host.name, *PORTS)
    argv = [*fleet.prefix, sys.executable, "-c", SCANNER, *map(str, PORTS)]
    argv += [host.address for host in fleet.hosts]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as scanner:
        try:
            assert scanner.stdout is not None
            assert scanner.stdout.readline() == "scanning\n"
            report, done = check("--duration", "2")
        finally:
            scanner.kill()
        found = [line for line in scanner.stdout if line.startswith("open")]
    assert found, "the scanner met no listener at all"
    (strangers,) = (f for f in report["findings"] if f["id"] == "RK-NET-011")
    assert strangers["status"] == "warn"
    counted = sum(item["value"] for item in strangers["evidence"])
    assert 1 <= counted <= len(found)
    assert report["verdict"] == verdict([], []), report["findings"]
    assert done.code == 0


@pytest.mark.long
def test_an_earlier_run_excuses_what_was_always_slow(
    check: Check, fleet: Hosts, tmp_path: Path
) -> None:
    fleet.limit_pair("h1", "h4", 60)
    before = tmp_path / "before"
    first, _ = check("--mode", "full", "-o", before)
    assert first["verdict"] == verdict([], [["h1", "h4"]]), first["findings"]
    fleet.limit_pair("h2", "h3", 60)
    # The folder, or any file in it.
    again, done = check("--mode", "full", "--baseline", before / "edges.jsonl")
    assert again["verdict"] == verdict([], [["h2", "h3"]]), again["findings"]
    assert again["thresholds"]["baseline_links"] == 6
    assert done.code == 1


@pytest.mark.long
def test_a_node_that_answers_late_is_convicted_by_its_bound_alone(
    check: Check, fleet: Hosts
) -> None:
    fleet.delay_pings("h3", 20.0)
    # On a busy machine a healthy round trip takes some milliseconds now and then.
    report, done = check("--max-latency", "15000")
    assert report["verdict"] == verdict(["h3"], []), report["findings"]
    assert done.code == 1
    rows = {row["node"]: row["latency_us"] for row in report["nodes"]}
    assert rows["h3"] > 15000
    without, done = check()
    assert without["verdict"] == verdict([], []), without["findings"]
    assert done.code == 0
