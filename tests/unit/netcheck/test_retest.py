"""One node tested again: what passes, what fails, and what proves nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from relkit.findings import Status
from relkit.netcheck.check_result import CheckResult
from relkit.netcheck.model import Diagnosis, Edge, Failure, NetVerdict, NodeFacts
from relkit.netcheck.report.retest import retest_finding, with_partners

NAMES = ("n1", "n2", "n3", "n4")


def result(failure: Failure = Failure.NONE) -> CheckResult:
    edges = tuple(
        Edge(one, two, 0, bandwidth_gbps=0.0 if failure else 1.0, failure=failure)
        for one in NAMES for two in NAMES if one != two
    )  # fmt: skip
    return CheckResult(NAMES, tuple(NodeFacts(name) for name in NAMES), edges)


def blamed(*nodes: str) -> Diagnosis:
    kind = "node" if len(nodes) == 1 else "link"
    return Diagnosis(nodes, kind, " - ".join(nodes), "slow", 0.5, 0.99)


@pytest.mark.parametrize(
    ("verdict", "status"),
    [
        (NetVerdict(), Status.OK),
        (NetVerdict(diagnoses=(blamed("n3"),)), Status.OK),
        (NetVerdict(diagnoses=(blamed("n1"),)), Status.FAIL),
        (NetVerdict(diagnoses=(blamed("n1", "n2"),)), Status.FAIL),
        (NetVerdict(inconclusive=((("n1", "n2"), "either"),)), Status.UNKNOWN),
        (NetVerdict(inconclusive=((("n3", "n2"), "either"),)), Status.OK),
    ],
)
def test_only_what_is_said_of_the_node_counts(verdict: NetVerdict, status: Status) -> None:
    assert retest_finding(result(), verdict, "n1").status is status


def test_a_node_that_was_not_measured_does_not_pass() -> None:
    whole = result()
    silent = replace(whole, facts=(NodeFacts("n1", answered=False), *whole.facts[1:]))
    assert retest_finding(silent, NetVerdict(), "n1").status is Status.UNKNOWN
    down = NodeFacts("n1", answered=False, host_down=True)
    gone = replace(whole, facts=(down, *whole.facts[1:]))
    assert retest_finding(gone, NetVerdict(), "n1").status is Status.FAIL
    failed = result(Failure.PROBE_ERROR)
    assert retest_finding(failed, NetVerdict(), "n1").status is Status.UNKNOWN
    assert retest_finding(whole, NetVerdict(), "n7").status is Status.UNKNOWN


def test_partners_are_spread_over_the_list() -> None:
    names = [f"n{at}" for at in range(100)]
    chosen = with_partners(names, "n50", names)
    assert "n50" in chosen
    assert len(chosen) == 6
    assert chosen == ("n0", "n19", "n39", "n50", "n60", "n80")
    assert with_partners(["a", "b"], "b", ["a", "b"]) == ("a", "b")
