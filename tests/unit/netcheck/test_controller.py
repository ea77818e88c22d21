"""The controller against a fake fleet: every step ends, whoever stays silent, dies or lies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from relkit.fleet import agent_rpc
from relkit.hosts import NodeSpec
from relkit.netcheck.check_result import CheckResult, could_not_run
from relkit.netcheck.measure.controller import run_check
from relkit.netcheck.measure.options import GRACE_S, CheckOptions
from relkit.netcheck.model import Edge, Failure
from tests.unit.fleet.fake_fleet import FakeClock, FakeFleet

NODES = tuple(NodeSpec(name) for name in "abcd")
ROUNDS = ((("a", "b"), ("c", "d")), (("a", "c"), ("b", "d")), (("a", "d"), ("b", "c")))


@dataclass
class Fixed:
    """A schedule of given rounds."""

    rounds: Sequence[tuple[tuple[str, str], ...]] = ROUNDS
    max_rounds: int = len(ROUNDS)
    under_load: bool = False
    played: int = 0
    seen: list[int] = field(default_factory=list)

    def next_round(self, edges: Sequence[Edge]) -> tuple[tuple[str, str], ...]:
        self.seen.append(len(edges))
        self.played += 1
        return self.rounds[self.played - 1] if self.played <= len(self.rounds) else ()


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    """The conversation waits on this clock; nothing here takes real time."""
    clock = FakeClock()
    monkeypatch.setattr(agent_rpc.AgentRpc.__init__, "__defaults__", (clock,))
    return clock


def run(fleet: FakeFleet, schedule: Fixed | None = None, **options: Any) -> CheckResult:  # noqa: ANN401
    schedule = schedule or Fixed()
    return run_check(fleet, NODES, lambda _names: schedule, options=CheckOptions(**options))


def failed(result: CheckResult) -> set[tuple[str, str, str]]:
    return {(e.source, e.target, e.accused) for e in result.edges if e.failure}


def test_every_pair_of_every_round_gives_an_edge_each_way() -> None:
    fleet, schedule = FakeFleet(gbps={("a", "c"): 3.0}), Fixed()
    result = run(fleet, schedule)
    assert [len(r) * 2 for r in ROUNDS] == [sum(e.round == i for e in result.edges)
                                            for i in range(3)]  # fmt: skip
    assert schedule.seen == [0, 4, 8, 12]
    slow = [e for e in result.edges if e.bandwidth_gbps < 5]
    assert [(e.source, e.target, e.round) for e in slow] == [("a", "c", 1)]
    assert fleet.closed == 1
    assert not result.lost
    assert result.rounds == 3


def test_each_round_has_a_secret_of_its_own_and_every_listener_is_ended() -> None:
    fleet = FakeFleet()
    run(fleet)
    secrets = [m["all"]["secret"] for m in fleet.sent if m["op"] == "listen"]
    assert len(set(secrets)) == 3
    assert all(len(secret) >= 32 for secret in secrets)
    listening = [set(m["to"]) for m in fleet.sent if m["op"] == "listen"]
    assert listening == [set(m["to"]) for m in fleet.sent if m["op"] == "end"]


def test_a_node_without_an_agent_is_kept_with_its_reason_and_never_paired() -> None:
    fleet = FakeFleet(unanswered={"d": "ssh refused the login"})
    asked: list[list[str]] = []

    def plan(names: Sequence[str]) -> Fixed:
        asked.append(list(names))
        return Fixed(())

    result = run_check(fleet, NODES, plan)
    assert asked == [["a", "b", "c"]]
    assert result.facts[3].answered is False
    assert result.facts[3].detail == "ssh refused the login"
    assert all("d" not in message.get("to", {}) for message in fleet.sent)


@pytest.mark.parametrize("op", ["listen", "probe"])
def test_a_silent_agent_costs_its_pair_one_deadline_and_is_accused_from_then_on(
    op: str, clock: FakeClock
) -> None:
    # In round 0, b accepts from a; to be asked to connect, the silent one must come first.
    node = "b" if op == "listen" else "a"
    fleet = FakeFleet(clock, silent={(node, op)})
    result = run(fleet, timeout_s=7.0)
    assert failed(result) == {
        pair for other in "abcd" if other != node
        for pair in ((node, other, node), (other, node, node))
    }  # fmt: skip
    assert "did not reply" in result.lost[node]
    assert {e.failure for e in result.edges if e.failure} == {Failure.NO_AGENT}
    assert clock.now_s < 7.1 + GRACE_S
    assert sum(not e.failure for e in result.edges) == 6


@pytest.mark.parametrize("op", ["facts", "listen", "probe", "end"])
def test_an_agent_that_dies_is_named_and_the_rounds_go_on(op: str, clock: FakeClock) -> None:
    fleet = FakeFleet(clock, dying={("b", op)})
    result = run(fleet)
    assert result.lost == {"b": "killed"}
    assert len(result.edges) == 12
    assert {e.link for e in result.edges if not e.failure} >= {
        e.link for e in result.edges if "b" not in (e.source, e.target)
    }
    assert all(e.accused == "b" for e in result.edges if e.failure)
    assert clock.now_s < 1.0


def test_a_pair_that_gets_no_answer_accuses_nobody() -> None:
    result = run(FakeFleet(failing={frozenset("ac")}))
    assert failed(result) == {("a", "c", ""), ("c", "a", "")}
    assert {e.failure for e in result.edges if e.failure} == {Failure.NO_ANSWER}
    assert not result.lost


@pytest.mark.parametrize(
    "reply",
    [
        {"op": "error", "detail": "no such probe"},
        {"op": "edge", "edge": None},
        {"op": "edge", "edge": {"source": "a", "target": "d", "bandwidth_gbps": 5}},
        {"op": "edge", "edge": {"source": "a", "target": "a"}},
        {"op": "edge", "edge": {"source": ["a"], "target": {"b": 1}}},
        {"op": "edge"},
        {"op": 5},
    ],
)
def test_nonsense_from_the_connecting_side_is_a_failed_edge(reply: Mapping[str, Any]) -> None:
    fleet = FakeFleet(odd={("a", "probe"): [dict(reply), dict(reply)]})
    result = run(fleet, Fixed((ROUNDS[0],)))
    assert failed(result) == {("a", "b", ""), ("b", "a", "")}
    assert sum(not e.failure for e in result.edges) == 2


@pytest.mark.parametrize("figure", [float("nan"), float("inf"), -5, "fast", None, 10**400, True])
def test_impossible_figures_are_not_believed(figure: object) -> None:
    edge = {"source": "a", "target": "b", "bandwidth_gbps": figure, "latency_p50_us": figure}
    back = {"source": "b", "target": "a", "bandwidth_gbps": 4}
    fleet = FakeFleet(odd={("a", "probe"): [{"op": "edge", "edge": e} for e in (edge, back)]})
    result = run(fleet, Fixed((ROUNDS[0],)))
    found = {(e.source, e.target): e for e in result.edges}
    assert found["a", "b"].bandwidth_gbps == 0.0
    assert found["a", "b"].latency_p50_us == 0.0
    assert found["b", "a"].bandwidth_gbps == 4.0


def test_a_listener_that_cannot_be_opened_is_an_error_of_the_probe() -> None:
    fleet = FakeFleet(odd={("b", "listen"): [{"op": "error", "detail": "no route to a"}]})
    result = run(fleet, Fixed((ROUNDS[0],)))
    mine = [e for e in result.edges if e.failure]
    assert {(e.failure, e.accused, e.detail) for e in mine} == {
        (Failure.PROBE_ERROR, "", "no route to a")
    }


def test_late_replies_to_an_earlier_request_are_dropped(clock: FakeClock) -> None:
    late = {"op": "edge", "id": 1, "edge": {"source": "c", "target": "d", "bandwidth_gbps": 1}}
    fleet = FakeFleet(clock, odd={("c", "probe"): [late, late]})
    result = run(fleet, Fixed((ROUNDS[0],)))
    assert ("c", "d") in {(e.source, e.target) for e in result.edges if e.failure}


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_the_channel_is_closed_whatever_happens(error: type[BaseException]) -> None:
    def raise_it(message: Mapping[str, Any]) -> None:
        if message["op"] == "probe":
            raise error

    fleet = FakeFleet(on_send=raise_it)
    with pytest.raises(error):
        run(fleet)
    assert fleet.closed == 1


def test_facts_of_the_nodes_are_kept() -> None:
    fleet = FakeFleet(
        unauthenticated={"b": 3}, machines={"a": "m1", "c": "m1", "b": "m2"}, skew_s={"d": -40.0}
    )
    result = run(fleet, compute_rounds=2)
    facts = {item.name: item for item in result.facts}
    assert facts["b"].unauthenticated_connections == 3
    assert result.duplicate_hosts == (("a", "c"),)
    assert facts["d"].clock_skew_s == -40.0
    assert facts["a"].hostname == "host-a"
    assert {item.compute_gflops for item in result.facts} == {50.0}
    assert [(s.node, s.device, s.memory_gbps) for s in result.scores] == [
        (node, "cpu", (5.0, 5.0)) for node in sorted(facts)
    ]


def test_a_listener_without_a_route_to_its_peer_is_a_failed_pair() -> None:
    reply = {"op": "error", "failure": "no route to the peer", "detail": "no route to 10.0.0.1"}
    result = run(FakeFleet(odd={("b", "listen"): [reply]}))
    edges = [edge for edge in result.edges if edge.failure]
    assert {edge.failure for edge in edges} == {Failure.NO_ROUTE}
    assert {edge.detail for edge in edges} == {"no route to 10.0.0.1"}
    assert not any(could_not_run(edge) or edge.accused for edge in edges)


def test_a_node_that_gives_no_scores_is_named_and_stays_in_the_check() -> None:
    odd = {("b", "compute"): [{"op": "error", "detail": "no numpy"}]}
    result = run(FakeFleet(odd=odd), compute_rounds=1)
    assert dict(result.score_errors) == {"b": "no numpy"}
    assert "b" not in {score.node for score in result.scores} | set(result.lost)


def test_devices_of_nodes_that_share_no_host_are_timed_in_one_go() -> None:
    fleet = FakeFleet(
        machines={"a": "boot1/1", "b": "boot2/1", "c": "boot3/1", "d": "boot3/2"},
        odd={("b", "rates"): [{"op": "error", "detail": "no numpy"}]},
    )
    result = run(fleet, rate_rounds=3)
    (asked,) = (message for message in fleet.sent if message["op"] == "rates")
    assert set(asked["to"]) == {"a", "b"}
    (score,) = result.scores
    assert (score.node, score.device, score.model) == ("a", "cpu", "m")
    assert score.compute_gflops == (9.0, 8.0)
    assert dict(result.score_errors) == {"b": "no numpy"}
    # They are no scores of the whole CPU.
    assert {item.compute_gflops for item in result.facts} == {0.0}


@pytest.mark.parametrize("machines", [{}, dict.fromkeys("abcd", "boot1/1"), {"a": "boot1/1"}])
def test_devices_are_not_timed_where_there_is_nothing_to_compare(
    machines: dict[str, str],
) -> None:
    fleet = FakeFleet(machines=machines)
    assert run(fleet, rate_rounds=3).scores == ()
    assert all(message["op"] != "rates" for message in fleet.sent)


def test_rounds_are_told_of_as_they_go() -> None:
    told: list[tuple[int, int, str]] = []
    run_check(FakeFleet(), NODES, lambda _n: Fixed(), progress=lambda *step: told.append(step))
    assert [(done, most) for done, most, what in told if what.startswith("round")] == [
        (0, 3), (1, 3), (2, 3),
    ]  # fmt: skip
