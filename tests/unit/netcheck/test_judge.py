"""From the measurements to the verdict: which nodes are dead, which links were tested."""

from __future__ import annotations

import itertools

from relkit.netcheck.check_result import CheckResult
from relkit.netcheck.model import Edge, Failure, NodeFacts, Thresholds
from relkit.netcheck.solve.judge import judge

NAMES = ("n1", "n2", "n3", "n4")


def checked(**changes: NodeFacts) -> CheckResult:
    """A fleet in which every pair that answered was measured at full speed."""
    facts = {name: changes.get(name, NodeFacts(name)) for name in NAMES}
    edges = [
        Edge(source, target, 0, bandwidth_gbps=10.0)
        for source, target in itertools.permutations(NAMES, 2)
        if facts[source].answered and facts[target].answered
    ]
    return CheckResult(NAMES, tuple(facts.values()), tuple(edges), rounds=3)


def test_every_pair_of_nodes_is_one_possible_link() -> None:
    verdict = judge(checked(), Thresholds())
    assert (verdict.tested_links, verdict.possible_links, verdict.rounds) == (6, 6, 3)
    missing = judge(checked(n4=NodeFacts("n4", answered=False)), Thresholds())
    # A pair that was never tested is not healthy: it still counts.
    assert (missing.tested_links, missing.possible_links) == (3, 6)


def test_only_a_host_that_is_down_is_dead_and_one_without_an_agent_is_not() -> None:
    silent = checked(n4=NodeFacts("n4", answered=False, detail="no key"))
    assert judge(silent, Thresholds()).diagnoses == ()
    down = checked(n4=NodeFacts("n4", answered=False, detail="no route", host_down=True))
    (diagnosis,) = judge(down, Thresholds()).diagnoses
    assert (diagnosis.nodes, diagnosis.fault) == (("n4",), "dead")


def test_a_pair_that_nobody_accuses_and_cannot_be_probed_is_no_fault() -> None:
    whole = checked()
    edges = [
        Edge(edge.source, edge.target, 0, failure=Failure.PROBE_ERROR)
        if "n4" in (edge.source, edge.target)
        else edge
        for edge in whole.edges
    ]
    broken = CheckResult(NAMES, whole.facts, tuple(edges))
    assert judge(broken, Thresholds()).diagnoses == ()
