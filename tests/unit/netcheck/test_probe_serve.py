"""The agent's handlers, called as an agent calls them."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from typing import Any

import pytest

from relkit.errors import UsageProblem
from relkit.fleet.agent import Handler, Request
from relkit.net.dial import dial
from relkit.net.handshake import CONTROL
from relkit.net.interface import NoRoute, resolve, route_to
from relkit.net.listener import Listener
from relkit.netcheck.measure import serve
from relkit.netcheck.measure.probes.base import Plan, ProbeFailed
from relkit.netcheck.measure.serve import handlers
from relkit.netcheck.model import Edge, Failure, NodeFacts

SECRET = bytes(range(16)).hex()


class Node:
    """One agent's handlers under a name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.handlers: Mapping[str, Handler] = handlers()

    def ask(self, op: str, **fields: Any) -> list[dict[str, Any]]:  # noqa: ANN401  a message
        request = Request(self.name, op, 1, fields, threading.Event())
        replies = [dict(reply) for reply in self.handlers[op](request)]
        return [json.loads(json.dumps(reply)) for reply in replies]


def test_a_round_between_two_agents() -> None:
    one, other = Node("n1"), Node("n2")
    (listening,) = other.ask("listen", round=5, secret=SECRET, peer_address="127.0.0.1")
    common = {
        "round": 5, "secret": SECRET, "probe": "tcp", "sizes": [65536], "streams": 1,
        "duration_s": 0.05, "both_ways": False, "timeout_s": 20,
    }  # fmt: skip
    said: list[dict[str, Any]] = []
    thread = threading.Thread(
        target=lambda: said.extend(other.ask("probe", role="accept", peer="n1", **common))
    )
    thread.start()
    replies = one.ask(
        "probe", role="connect", peer="n2", address=listening["address"], port=listening["port"],
        **common,
    )  # fmt: skip
    thread.join(20)
    assert said == []
    edges = [Edge(**reply["edge"]) for reply in replies]
    assert [(edge.source, edge.target) for edge in edges] == [("n1", "n2"), ("n2", "n1")]
    assert all(edge.bandwidth_gbps > 0 and edge.failure == Failure.NONE for edge in edges)
    assert other.ask("end", round=5) == [{"op": "ended", "round": 5, "unauthenticated": 0}]


def test_unauthenticated_connections_reach_the_facts_and_the_end_of_the_round() -> None:
    node = Node("n1")
    (listening,) = node.ask("listen", round=0, secret=SECRET, address="127.0.0.1")
    with pytest.raises(PermissionError):
        dial("127.0.0.1", listening["port"], 0, b"x" * 16, CONTROL, 10)
    assert node.ask("facts", peers=[])[0]["facts"]["unauthenticated_connections"] == 1
    assert node.ask("end", round=0)[0]["unauthenticated"] == 1
    with pytest.raises(ConnectionRefusedError):
        dial("127.0.0.1", listening["port"], 0, bytes.fromhex(SECRET), CONTROL, 10)


def test_listening_again_in_the_same_round_closes_the_first() -> None:
    node = Node("n1")
    first, second = (
        node.ask("listen", round=0, secret=SECRET, address="127.0.0.1")[0]["port"] for _ in range(2)
    )
    with pytest.raises(ConnectionRefusedError):
        dial("127.0.0.1", first, 0, bytes.fromhex(SECRET), CONTROL, 10)
    dial("127.0.0.1", second, 0, bytes.fromhex(SECRET), CONTROL, 10).close()
    node.ask("end", round=0)


def test_ending_a_round_that_never_was_is_no_error() -> None:
    assert Node("n1").ask("end", round=9)[0]["op"] == "ended"


def test_the_accepting_end_reports_its_own_failure() -> None:
    node = Node("n1")
    (reply,) = node.ask("probe", role="accept", round=1, secret=SECRET, peer="n2")
    assert (reply["side"], reply["edge"]["failure"]) == ("accept", str(Failure.PROBE_ERROR))
    assert "no listener" in reply["edge"]["detail"]


@pytest.mark.parametrize("fails", [False, True])
def test_a_listener_is_gone_once_its_probe_has_ended(
    monkeypatch: pytest.MonkeyPatch, *, fails: bool
) -> None:
    """Also where the controller dies before it ends the round."""

    class Ended:
        name = "tcp"

        def accept(self, plan: Plan, listener: Listener) -> None:
            if fails:
                raise ProbeFailed(Failure.NO_ANSWER, "nobody came")

    monkeypatch.setattr(serve, "open_probe", lambda name: Ended())
    node = Node("n1")
    (listening,) = node.ask("listen", round=3, secret=SECRET, address="127.0.0.1")
    replies = node.ask("probe", role="accept", round=3, secret=SECRET, peer="n2")
    assert len(replies) == fails
    with pytest.raises(ConnectionRefusedError):
        dial("127.0.0.1", listening["port"], 3, bytes.fromhex(SECRET), CONTROL, 10)


def test_bad_requests_are_refused() -> None:
    node = Node("n1")
    with pytest.raises(UsageProblem, match="hexadecimal"):
        node.ask("listen", round=1, address="127.0.0.1", **{"secret": "not hex"})
    with pytest.raises(UsageProblem, match="where to listen"):
        node.ask("listen", round=1, secret=SECRET)
    with pytest.raises(UsageProblem, match="no probe"):
        node.ask("probe", probe="carrier pigeon", round=1, secret=SECRET, peer="n2")
    with pytest.raises(KeyError):
        node.ask("end")


def test_facts_name_the_interface_and_its_mtu() -> None:
    (reply,) = Node("n1").ask("facts", peers=["127.0.0.1", "name.invalid"])
    facts = NodeFacts(**reply["facts"])
    assert (facts.name, facts.address, facts.interface) == ("n1", "127.0.0.1", "lo")
    assert facts.mtu > 1000
    assert reply["routes"]["127.0.0.1"]["loopback"]
    assert "name.invalid" in reply["unreached"]["name.invalid"]


def test_facts_without_a_peer() -> None:
    (reply,) = Node("n1").ask("facts")
    assert reply["facts"]["address"] == ""
    assert reply["missing"] == ""


def test_facts_say_what_a_probe_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    (reply,) = Node("n1").ask("facts", probe="ib")
    assert "perftest is not installed" in reply["missing"]


def test_routes_and_names() -> None:
    assert resolve("::1") == "::1"
    assert resolve("localhost") in ("127.0.0.1", "::1")
    assert route_to("::1").interface in ("lo", "")
    for wrong in ("--help", "two words", "name.invalid"):
        with pytest.raises(NoRoute):
            resolve(wrong)


def test_a_failed_probe_says_what_to_do() -> None:
    assert "firewall" in ProbeFailed(Failure.NO_ANSWER, "x").next_step
