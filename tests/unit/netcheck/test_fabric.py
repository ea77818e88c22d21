"""Which fabric was measured, whether a faster one is up beside it, and what a line should carry."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from relkit.findings import Finding, Status
from relkit.netcheck.check_result import CheckResult
from relkit.netcheck.measure.fabric import SysfsFabric, job_settings
from relkit.netcheck.measure.probes.choice import choose, write_unable
from relkit.netcheck.measure.probes.torch_child import named_network
from relkit.netcheck.model import Edge, NodeFacts, Port
from relkit.netcheck.record import plain_facts, read_facts
from relkit.netcheck.report.fabric_findings import fabric_facts, fabric_findings

NAMES = ("n1", "n2", "n3", "n4")
ETH0 = Port("eth0", "ethernet", 1000, 1500, "eth0", "10.0.0.0/24")
ETH1 = Port("eth1", "ethernet", 100_000, 9000, "eth1", "10.1.0.0/24")
HCA = Port("mlx5_0", "infiniband", 400_000)


def write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text + "\n")


def host(root: Path) -> Path:
    """A host with two InfiniBand ports, one of them down, and six interfaces."""
    ports = root / "infiniband" / "mlx5_0" / "ports"
    write(ports / "1", state="4: ACTIVE", rate="400 Gb/sec (4X NDR)", link_layer="InfiniBand")
    write(ports / "2", state="1: DOWN", rate="2.5 Gb/sec (1X SDR)", link_layer="InfiniBand")
    roce = root / "infiniband" / "mlx5_1"
    write(roce / "ports" / "1", state="4: ACTIVE", rate="100 Gb/sec (4X EDR)",
          link_layer="Ethernet")  # fmt: skip
    (roce / "device" / "net" / "eth1").mkdir(parents=True)
    efa = root / "infiniband" / "efa_0" / "ports" / "1"
    write(efa, state="4: ACTIVE", rate="100 Gb/sec (4X EDR)", link_layer="Unspecified")
    usual = {"operstate": "up", "type": "1", "mtu": "1500"}
    for name, files in {
        "eth0": {**usual, "speed": "1000"},
        "eth1": {**usual, "speed": "100000", "mtu": "9000"},
        "eth2": {**usual, "speed": "25000", "operstate": "down"},
        "eth3": {**usual, "speed": "-1"},
        "ib0": {**usual, "speed": "400000", "type": "32"},
    }.items():
        write(root / "net" / name, **files)
        (root / "net" / name / "device").mkdir()
    write(root / "net" / "veth7", **usual, speed="10000")
    return root


def test_ports_that_are_up_are_found_and_virtual_ones_left_out(tmp_path: Path) -> None:
    found = SysfsFabric(host(tmp_path), lambda: {"eth1": "10.1.0.0/24"}).ports()
    assert found == (
        Port("efa_0", "efa", 100_000),
        Port("mlx5_0", "infiniband", 400_000),
        Port("mlx5_1", "roce", 100_000, interface="eth1"),
        replace(ETH0, network=""),
        ETH1,
        Port("ib0", "ipoib", 400_000, 1500, "ib0"),
    )
    assert SysfsFabric(tmp_path / "nothing", dict).ports() == ()


def test_settings_of_who_started_the_check_come_before_the_hosts_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NCCL_NET", raising=False)
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "eth9")
    conf = tmp_path / "nccl.conf"
    conf.write_text("# of the site\nNCCL_IB_DISABLE = 1\nNCCL_SOCKET_IFNAME=eth8\n")
    assert job_settings({}, conf) == "NCCL_IB_DISABLE=1 NCCL_SOCKET_IFNAME=eth9"
    sent = {"NCCL_SOCKET_IFNAME": "eth0", "NCCL_NET": "two words"}
    assert job_settings(sent, conf) == "NCCL_IB_DISABLE=1 NCCL_SOCKET_IFNAME=eth0"


def test_ports_come_back_from_a_bundle() -> None:
    facts = NodeFacts("n1", ports=(HCA, ETH0), unable="ib: no perftest", settings="NCCL_NET=IB")
    assert read_facts(plain_facts(facts)) == facts
    broken = {
        "name": "n1",
        "ports": [{"name": "x"}, 3, {"name": "y", "kind": "z", "speed_mbps": -1}],
    }
    assert read_facts(broken) == NodeFacts("n1")


def able(name: str, **reasons: str) -> NodeFacts:
    known = {"nccl": "", "hccl": "no driver", "ib": "", **reasons}
    return NodeFacts(name, unable=write_unable(known))


def test_the_probe_is_the_first_that_all_nodes_can_run() -> None:
    assert choose([able("a"), able("b")]) == ("nccl", "")
    none = {"nccl": "no driver of a device"}
    assert choose([able("a", **none), able("b", **none)]) == ("ib", "")
    assert choose([able("a", **none), able("b", **none)], sizes=3) == ("tcp", "")
    no_ib = {**none, "ib": "no port; none at all"}
    assert choose([able("a", **no_ib), able("b", **no_ib)]) == ("tcp", "")
    assert choose([]) == ("tcp", "")
    assert choose([NodeFacts("old"), NodeFacts("older")]) == ("tcp", "")


def test_where_only_some_nodes_have_devices_that_is_said() -> None:
    no_gpu = {"nccl": "torch is not installed", "ib": "no port"}
    probe, remark = choose([able("a"), able("b", **no_gpu)])
    assert probe == "tcp"
    assert "1 of 2 nodes can measure with nccl" in remark
    assert "b cannot (torch is not installed)" in remark


def result(*ports: Port, probe: str = "tcp", gbps: float = 0.9, **facts: object) -> CheckResult:
    nodes = tuple(
        NodeFacts(name, interface="eth0", ports=ports, **facts)  # type: ignore[arg-type]
        for name in NAMES
    )
    fabric = str(facts.pop("fabric", ""))
    edges = tuple(
        Edge(one, two, 0, probe, bandwidth_gbps=gbps, fabric=fabric)
        for one, two in (("n1", "n2"), ("n2", "n1"), ("n3", "n4"), ("n4", "n3"))
    )
    return CheckResult(NAMES, nodes, edges, probe=probe)


def only(found: list[Finding], name: str) -> Finding:
    (finding,) = [each for each in found if each.id == name]
    assert finding.status is Status.WARN
    return finding


def test_tcp_beside_infiniband_is_said_with_both_speeds() -> None:
    slow = only(fabric_findings(result(HCA, ETH0, settings="NCCL_IB_DISABLE=1")), "RK-NET-025")
    assert slow.title == (
        "the tcp probe went over eth0 (1 Gbit/s) on n[1-4], and InfiniBand of 400 Gbit/s is up "
        "there (mlx5_0)"
    )
    assert "set there: NCCL_IB_DISABLE=1" in slow.reasons


def test_the_slow_one_of_two_interfaces_is_said_whoever_chose_it() -> None:
    slow = only(fabric_findings(result(ETH0, ETH1)), "RK-NET-025")
    assert "Ethernet of 100 Gbit/s is up there (eth1)" in slow.title
    assert "NCCL_SOCKET_IFNAME=eth1" in slow.advice
    by_setting = CheckResult(
        NAMES,
        tuple(
            NodeFacts(
                name, interface="eth1", ports=(ETH0, ETH1), settings="NCCL_SOCKET_IFNAME=eth0"
            )
            for name in NAMES
        ),
        (),
    )
    slow = only(fabric_findings(by_setting), "RK-NET-025")
    assert slow.title.startswith("NCCL_SOCKET_IFNAME=eth0 leads over eth0 (1 Gbit/s)")


def test_a_faster_port_that_no_other_node_is_known_to_reach_is_not_named() -> None:
    apart = replace(
        result(ETH0),
        facts=tuple(
            NodeFacts(name, interface="eth0",
                      ports=(ETH0, replace(ETH1, network=f"10.{at + 5}.0.0/24")))
            for at, name in enumerate(NAMES)
        ),
    )  # fmt: skip
    assert not fabric_findings(apart)
    no_address = replace(ETH1, network="")
    assert not fabric_findings(result(ETH0, no_address))
    one_hca = replace(
        result(ETH0),
        facts=tuple(
            NodeFacts(name, interface="eth0", ports=(ETH0, *([HCA] if name == "n1" else [])))
            for name in NAMES
        ),
    )
    assert not fabric_findings(one_hca)


def test_what_is_no_slower_transport() -> None:
    fast = result(ETH1, replace(HCA, speed_mbps=100_000), gbps=90.0)
    on_eth1 = replace(fast, facts=tuple(replace(f, interface="eth1") for f in fast.facts))
    assert not fabric_findings(on_eth1)
    roce_on_the_same = replace(HCA, kind="roce", interface="eth0")
    assert not fabric_findings(result(ETH0, roce_on_the_same))
    assert not fabric_findings(replace(result(HCA, ETH0), one_host=True))
    assert not fabric_findings(result(HCA, ETH0, probe="ib", gbps=380.0))


def nccl_said(fabric: str, gbps: float) -> CheckResult:
    made = result(HCA, ETH0, probe="nccl", gbps=gbps)
    return replace(made, edges=tuple(replace(edge, fabric=fabric) for edge in made.edges))


def test_nccl_says_itself_what_it_uses() -> None:
    slow = only(fabric_findings(nccl_said("Socket", 0.9)), "RK-NET-025")
    assert slow.title.startswith("NCCL sends through sockets over eth0 (1 Gbit/s) on n[1-4], and")
    assert not fabric_findings(nccl_said("IB", 380.0))
    assert fabric_facts(nccl_said("IB", 380.0))["fabric"] == (
        "nccl by IB over mlx5_0 (InfiniBand, 400 Gbit/s)"
    )


def test_nccls_log_names_its_network(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("h:1:2 [0] NCCL INFO NET/IB : No device found.\n"
                   "h:1:2 [0] NCCL INFO Using network Socket\n")  # fmt: skip
    assert named_network(log) == "Socket"
    log.write_text("nothing")
    assert named_network(log) == named_network(tmp_path / "absent") == ""


def test_the_expected_bandwidth_is_that_of_peers_and_of_the_line() -> None:
    facts = fabric_facts(result(ETH0, gbps=0.93))
    assert facts["fabric"] == "tcp over eth0 (Ethernet, 1 Gbit/s)"
    assert facts["expected"] == {
        "peers_gbps": 0.93,
        "line_gbps": pytest.approx(0.9415, abs=1e-4),
        "line_from": "speed of eth0 in sysfs: 1 Gbit/s, MTU 1500",
        "share_of_line": pytest.approx(0.9878, abs=1e-3),
    }
    unknown = fabric_facts(result(gbps=0.93))
    assert unknown["fabric"] == "tcp over eth0"
    assert (unknown["expected"]["line_gbps"], unknown["expected"]["peers_gbps"]) == (None, 0.93)


def test_a_loss_that_all_nodes_share_shows_against_the_line() -> None:
    low = only(fabric_findings(result(ETH0, gbps=0.3)), "RK-NET-026")
    assert low.title == ("the whole fleet is at 32% of what its lines carry: 0.3 of 0.941 Gbit/s")
    assert not fabric_findings(result(ETH0, gbps=0.6))
