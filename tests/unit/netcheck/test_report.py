"""CheckResult -> Report: every fault has its finding, and what was not seen never looks healthy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from relkit.findings import Finding, Report, Status
from relkit.fleet.ssh import SshCarrier
from relkit.hosts import NodeSpec
from relkit.netcheck.check_result import CheckResult
from relkit.netcheck.model import Diagnosis, Edge, Failure, NetVerdict, NodeFacts, Thresholds
from relkit.netcheck.report.report import net_report
from relkit.netcheck.report.statistics import NodeStatistics, by_node
from relkit.netcheck.solve.judge import judge

NAMES = ("n1", "n2", "n3", "n4")


def facts(name: str, **changes: object) -> NodeFacts:
    good = NodeFacts(name, f"host-{name}", f"10.0.0.{name[1:]}", interface="ib0", mtu=9000,
                     speed_mbps=100_000, duplex="full")  # fmt: skip
    return replace(good, **changes)  # type: ignore[arg-type]


def edges() -> tuple[Edge, ...]:
    return tuple(
        Edge(one, other, 0, bandwidth_gbps=90.0, latency_p50_us=20.0)
        for one in NAMES for other in NAMES if one != other
    )  # fmt: skip


def result(**changes: object) -> CheckResult:
    whole = CheckResult(NAMES, tuple(facts(name) for name in NAMES), edges(), mode="full", rounds=3)
    return replace(whole, **changes)  # type: ignore[arg-type]


def with_facts(**by_name: Mapping[str, object]) -> CheckResult:
    return result(facts=tuple(facts(name, **by_name.get(name, {})) for name in NAMES))


def report(seen: CheckResult, *diagnoses: Diagnosis, tested: int = 6) -> Report:
    return net_report(seen, NetVerdict(diagnoses, (), tested, 6, 3), Thresholds())


def only(made: Report, number: str) -> Finding:
    (found,) = [finding for finding in made.findings if finding.id == number]
    return found


def ids(made: Report) -> list[str]:
    return [finding.id for finding in made.findings]


def test_a_healthy_fleet() -> None:
    made = report(result())
    assert made.status is Status.OK
    assert ids(made) == ["RK-NET-013", "RK-NET-015"]
    assert made.facts["verdict"] == {"nodes": [], "links": [], "groups": []}
    assert made.facts["coverage"] == {"tested_links": 6, "possible_links": 6, "share": 1.0}


@pytest.mark.parametrize(
    ("diagnosis", "number", "words"),
    [
        (Diagnosis(("n3",), "node", "n3", "dead", 1, 1), "RK-NET-001", "n3 is dead"),
        (Diagnosis(("n3",), "node", "n3", "slow", 0.6, 1), "RK-NET-002", "n3 is slow: 60 %"),
        (Diagnosis(("n3",), "node", "n3", "slow out", 0.6, 1), "RK-NET-002", "at sending"),
        (Diagnosis(("n3",), "node", "n3", "slow in", 0.6, 1), "RK-NET-002", "at receiving"),
        (Diagnosis(("n1", "n3"), "link", "n1 - n3", "dead", 1, 1), "RK-NET-003", "is dead"),
        (Diagnosis(("n1", "n3"), "link", "n1 - n3", "slow", 0.3, 1), "RK-NET-004", "30 %"),
        (
            Diagnosis(("n1", "n2"), "group", "switch asw-1", "slow uplink", 0.4, 1),
            "RK-NET-005",
            "the uplink of switch asw-1 (2 nodes) is slow",
        ),
    ],
)
def test_each_diagnosis_is_a_failure_with_a_title_that_says_it(
    diagnosis: Diagnosis, number: str, words: str
) -> None:
    made = report(result(groups={"n1": "asw-1", "n2": "asw-1"}), diagnosis)
    found = only(made, number)
    assert made.exit_code == 1
    assert words in found.title
    assert found.advice
    assert "RK-NET-015" not in ids(made)
    key = {"node": "nodes", "link": "links", "group": "groups"}[diagnosis.kind]
    wanted = {"nodes": ["n3"], "links": [["n1", "n3"]], "groups": ["asw-1"]}[key]
    assert made.facts["verdict"] == {"nodes": [], "links": [], "groups": [], key: wanted}


def test_an_open_question_is_unknown_and_says_so() -> None:
    verdict = NetVerdict((), ((("n1", "n2"), "cannot tell n1 from n2"),), 1, 1, 1)
    made = net_report(result(), verdict, Thresholds())
    assert only(made, "RK-NET-007").title == "cannot tell n1 from n2"
    assert made.exit_code == 3


def test_a_node_without_an_answer_is_unknown_with_its_reason() -> None:
    seen = with_facts(n2={"answered": False, "detail": "no relkit there"},
                      n4={"answered": False, "detail": "no relkit there"})  # fmt: skip
    made = report(seen, tested=1)
    found = only(made, "RK-NET-006")
    assert found.nodes == "n[2,4]"
    assert found.reasons == ("no relkit there",)
    assert made.exit_code == 3
    assert made.facts["unknown"] == ["n2", "n4"]
    assert "RK-NET-015" not in ids(made)


@pytest.mark.parametrize(
    ("complaint", "down"),
    [
        ("ssh: connect to host n2 port 22: No route to host", True),
        ("ssh: connect to host n2 port 22: Connection timed out", True),
        ("ssh: connect to host n2 port 22: Network is unreachable", True),
        ("ssh: connect to host n2 port 22: Connection refused", False),
        ("root@n2: Permission denied (publickey).", False),
        ("Host key verification failed.", False),
        ("ssh: Could not resolve hostname n2: Name or service not known", False),
    ],
)
def test_only_a_host_that_is_not_there_is_dead(complaint: str, down: bool) -> None:
    ended = SshCarrier().explain(NodeSpec("n2"), 255, complaint)
    seen = with_facts(n2={"answered": False, "detail": ended.detail, "host_down": ended.host_down})
    seen = replace(seen, edges=tuple(e for e in edges() if "n2" not in (e.source, e.target)))
    verdict = judge(seen, Thresholds())
    made = net_report(seen, verdict, Thresholds())
    assert made.facts["verdict"]["nodes"] == (["n2"] if down else [])
    assert ("RK-NET-006" in ids(made)) is not down


def test_a_node_that_was_lost_is_convicted_once() -> None:
    broken = tuple(
        replace(e, bandwidth_gbps=0.0, failure=Failure.NO_AGENT, accused="n2")
        if "n2" in (e.source, e.target) else e
        for e in edges()
    )  # fmt: skip
    for seen in (result(lost={"n2": "killed"}), result(lost={"n2": "killed"}, edges=broken)):
        made = net_report(seen, judge(seen, Thresholds()), Thresholds())
        assert made.facts["verdict"]["nodes"] == ["n2"]
        assert ids(made).count("RK-NET-001") == 1


@pytest.mark.parametrize(
    ("changes", "number", "words"),
    [
        ({"interface": "eth1"}, "RK-NET-008", "n3 with eth1, 3 nodes with ib0"),
        ({"interface": "docker0"}, "RK-NET-008", "goes through docker0"),
        ({"mtu": 1500}, "RK-NET-009", "MTU differs: n3 with 1500 bytes, 3 nodes with 9000"),
        ({"speed_mbps": 1000}, "RK-NET-010", "link speed differs: n3 with 1000 Mbit/s"),
        ({"duplex": "half"}, "RK-NET-010", "duplex differs: n3 with half"),
        ({"unauthenticated_connections": 4}, "RK-NET-011", "4 unauthenticated connections"),
        ({"clock_skew_s": -90.0}, "RK-NET-012", "off, by up to 90.0 s"),
    ],
)
def test_what_a_nodes_own_facts_give_away(
    changes: dict[str, object], number: str, words: str
) -> None:
    made = report(with_facts(n3=changes))
    found = [finding for finding in made.findings if finding.id == number]
    assert any(words in finding.title for finding in found), found
    assert {finding.nodes for finding in found} == {"n3"}
    assert made.status is Status.WARN
    assert made.exit_code == 0


def test_facts_that_nobody_knows_are_no_difference() -> None:
    made = report(with_facts(n3={"mtu": 0, "speed_mbps": 0, "duplex": "", "interface": ""}))
    assert made.status is Status.OK


def test_compute_is_judged_by_itself() -> None:
    scores = {name: {"compute_gflops": 100.0, "memory_gbps": 20.0} for name in NAMES}
    made = report(with_facts(**{**scores, "n4": {"compute_gflops": 70.0, "memory_gbps": 20.0}}))
    assert only(made, "RK-NET-014").status is Status.WARN
    made = report(with_facts(**{**scores, "n4": {"compute_gflops": 30.0, "memory_gbps": 20.0}}))
    assert only(made, "RK-NET-014").status is Status.FAIL
    assert made.facts["verdict"]["nodes"] == []


def test_the_figures_of_a_node_are_medians_of_its_own_edges() -> None:
    seen = (
        Edge("n1", "n2", 0, bandwidth_gbps=10.0, latency_p50_us=20.0),
        Edge("n2", "n1", 0, bandwidth_gbps=4.0, latency_p50_us=30.0),
        Edge("n1", "n2", 1, failure=Failure.NO_ANSWER),
    )
    figures = by_node(NAMES, seen)
    assert figures["n1"] == NodeStatistics(10.0, 4.0, 25.0, None, tested=3, failed=1)
    assert figures["n3"] == NodeStatistics()


def test_two_names_of_one_machine() -> None:
    assert (
        "n1 and n3 are the same machine"
        in only(report(result(duplicate_hosts=(("n1", "n3"),))), "RK-NET-016").title
    )


@pytest.mark.parametrize(
    ("tested", "mode", "status"),
    [
        (6, "full", Status.OK),
        (4, "full", Status.WARN),
        (4, "quick", Status.OK),
        (0, "quick", Status.UNKNOWN),
    ],
)
def test_coverage_says_what_was_never_measured(tested: int, mode: str, status: Status) -> None:
    found = only(report(result(mode=mode), tested=tested), "RK-NET-013")
    assert found.status is status
    if 0 < tested < 6:
        assert "among the other 2" in found.title


def test_a_probe_that_cannot_run_is_no_word_on_the_network() -> None:
    broken = tuple(
        replace(e, failure=Failure.PROBE_ERROR, bandwidth_gbps=0.0, detail="no ib_write_bw here")
        for e in edges()
    )
    seen = result(edges=broken, probe="ib")
    made = net_report(seen, judge(seen, Thresholds()), Thresholds())
    found = only(made, "RK-NET-018")
    assert found.title == "the ib probe could not run between 6 pairs"
    assert found.reasons == ("no ib_write_bw here",)
    assert made.facts["verdict"] == {"nodes": [], "links": [], "groups": []}
    assert made.facts["coverage"]["tested_links"] == 0
    assert made.exit_code == 3


def test_one_node_alone_is_unknown() -> None:
    seen = CheckResult(("n1",), (facts("n1"),), ())
    made = net_report(seen, judge(seen, Thresholds()), Thresholds())
    assert made.exit_code == 3


def test_every_finding_is_in_the_documents() -> None:
    root = Path(__file__).parents[3]
    source = "".join(
        (root / "relkit" / "netcheck" / "report" / name).read_text()
        for name in ("report.py", "node_findings.py")
    )
    page = (root / "docs" / "reference" / "findings.md").read_text()
    numbers = {f"RK-NET-{n:03}" for n in range(1, 19)}
    assert {n for n in numbers if n in source} == numbers
    assert {n for n in numbers if n in page} == numbers


def test_agents_on_one_machine_convict_nobody_for_being_slow() -> None:
    slow = tuple(
        replace(e, bandwidth_gbps=0.1 * e.bandwidth_gbps) if "n2" in (e.source, e.target) else e
        for e in edges()
    )
    fleet = result(edges=slow)
    assert {c.name for c in judge(fleet, Thresholds()).diagnoses} == {"n2"}
    here = replace(fleet, one_host=True)
    verdict = judge(here, Thresholds())
    assert (verdict.diagnoses, verdict.inconclusive) == ((), ())
    made = net_report(here, verdict, Thresholds())
    assert only(made, "RK-NET-019").status is Status.WARN
    assert "equally fast" not in " ".join(finding.title for finding in made.findings)
    bounds = Thresholds(min_bandwidth_gbps=5.0)
    assert {c.name for c in judge(here, bounds).diagnoses} == {"n2"}


def test_agents_on_one_machine_are_convicted_for_being_dead() -> None:
    dead = tuple(
        replace(e, bandwidth_gbps=0.0, failure=Failure.NO_ANSWER)
        if "n2" in (e.source, e.target) else e
        for e in edges()
    )  # fmt: skip
    here = result(edges=dead, one_host=True)
    assert {c.name: c.fault for c in judge(here, Thresholds()).diagnoses} == {"n2": "dead"}
