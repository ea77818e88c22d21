"""relkit netcheck over real ssh: hosts with one fault, two, or none, and the verdict on it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.conftest import Start
from tests.cluster.hosts import Hosts, some_hosts
from tests.cluster.netcheck.conftest import RATE_MBIT, Check
from tests.patience import PATIENCE

pytestmark = [pytest.mark.root, pytest.mark.timeout(120)]
MODES = ("quick", pytest.param("full", marks=pytest.mark.long))


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Hosts]:
    """Six hosts of 200 Mbit/s each, with their own ssh servers."""
    with some_hosts(tmp_path, 6, rate_mbit=RATE_MBIT) as hosts:
        yield hosts


def verdict(nodes: list[str], links: list[list[str]], groups: list[str]) -> dict[str, Any]:
    return {"nodes": nodes, "links": links, "groups": groups}


def ids(report: dict[str, Any]) -> set[str]:
    return {finding["id"] for finding in report["findings"]}


@pytest.mark.parametrize("mode", MODES)
def test_a_healthy_fleet_has_no_fault(check: Check, mode: str) -> None:
    report, done = check("--mode", mode)
    assert report["verdict"] == verdict([], [], []), report["findings"]
    assert done.code == 0
    assert {"RK-NET-013", "RK-NET-015"} <= ids(report)
    assert report["median_gbps"] == pytest.approx(RATE_MBIT / 1000, rel=0.25)


def test_a_slow_node(check: Check, fleet: Hosts) -> None:
    fleet.limit("h3", out_mbit=80, in_mbit=80)
    report, done = check()
    assert report["verdict"] == verdict(["h3"], [], []), report["findings"]
    assert done.code == 1
    assert report["diagnoses"][0]["fault"] == "slow"
    assert report["diagnoses"][0]["severity"] == pytest.approx(0.6, abs=0.15)


@pytest.mark.long
def test_a_node_that_is_slow_one_way(check: Check, fleet: Hosts) -> None:
    fleet.limit("h5", out_mbit=80)
    report, _ = check()
    assert report["verdict"] == verdict(["h5"], [], []), report["findings"]
    assert report["diagnoses"][0]["fault"] == "slow out"


def test_one_slow_link(check: Check, fleet: Hosts) -> None:
    fleet.limit_pair("h2", "h5", 60)
    report, _ = check("--mode", "full")
    assert report["verdict"] == verdict([], [["h2", "h5"]], []), report["findings"]


@pytest.mark.long
def test_one_dead_link(check: Check, fleet: Hosts) -> None:
    fleet.cut_pair("h1", "h4")
    report, _ = check("--mode", "full")
    assert report["verdict"] == verdict([], [["h1", "h4"]], []), report["findings"]
    assert report["diagnoses"][0]["fault"] == "dead"


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "here", "there"),
    [
        ("blackhole", "h1", "h4"),
        ("blackhole", "h4", "h1"),
        ("unreachable", "h1", "h4"),
        ("prohibit", "h1", "h4"),
        ("throw", "h4", "h1"),
    ],
)
def test_a_missing_route_between_two_hosts_is_a_dead_link(
    check: Check, fleet: Hosts, kind: str, here: str, there: str
) -> None:
    fleet.exclude(here, there, kind)
    report, done = check("--mode", "full")
    assert report["verdict"] == verdict([], [["h1", "h4"]], []), report["findings"]
    assert report["diagnoses"][0]["fault"] == "dead"
    assert done.code == 1
    assert "RK-NET-018" not in ids(report)


def test_a_dead_host(check: Check, fleet: Hosts) -> None:
    fleet.cut("h6")
    report, done = check()
    assert report["verdict"] == verdict(["h6"], [], []), report["findings"]
    assert report["diagnoses"][0]["fault"] == "dead"
    assert done.code == 1


@pytest.mark.long
def test_two_faults_at_once(check: Check, fleet: Hosts) -> None:
    fleet.limit("h2", out_mbit=90, in_mbit=90)
    fleet.cut_pair("h4", "h6")
    report, _ = check("--mode", "full")
    assert report["verdict"] == verdict(["h2"], [["h4", "h6"]], []), report["findings"]


def test_a_slow_uplink_is_told_from_slow_nodes(check: Check, fleet: Hosts, tmp_path: Path) -> None:
    fleet.limit_across(["h1", "h2"], 120)
    switches = {"h1": "asw-1", "h2": "asw-1", "h3": "asw-2", "h4": "asw-2"}
    topology = tmp_path / "topology"
    lines = [f"{switches.get(h.name, 'asw-3')} psw-1 {h.address}\n" for h in fleet.hosts]
    topology.write_text("".join(lines))
    report, _ = check("--mode", "groups", "--topology", topology)
    assert report["verdict"] == verdict([], [], ["asw-1"]), report["findings"]


def test_a_host_that_cannot_be_asked_is_unknown_and_never_healthy(
    check: Check, fleet: Hosts
) -> None:
    fleet.stop_sshd("h4")
    report, done = check("--timeout", str(8 * PATIENCE))
    assert report["verdict"] == verdict([], [], [])
    assert report["unknown"] == ["h4"]
    assert done.code == 3
    assert "RK-NET-015" not in ids(report)


@pytest.mark.long
def test_a_saved_check_is_judged_again_without_the_fleet(
    check: Check, fleet: Hosts, start: Start, tmp_path: Path
) -> None:
    fleet.limit("h3", out_mbit=150, in_mbit=150)
    bundle = tmp_path / "bundle"
    first, _ = check("-o", bundle)
    assert first["verdict"]["nodes"] == ["h3"], first["findings"]
    fleet.close()
    again = start("netcheck", "--from", bundle, "--slow", "0.5", "--json").wait()
    assert json.loads(again.out)["verdict"] == verdict([], [], [])
    assert {path.name for path in bundle.iterdir()} >= {
        "edges.jsonl", "report.json", "report.html", "graph.dot",
    }  # fmt: skip
