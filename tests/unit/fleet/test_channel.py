"""Channels over processes on this machine: good agents, and every kind of bad one."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from relkit.errors import UsageProblem
from relkit.fleet.channel import Channel
from relkit.fleet.open import KINDS, open_channel
from relkit.hosts import NodeSpec, read_nodes
from tests.patience import PATIENCE

BAD = f"{sys.executable} {Path(__file__).with_name('fleet_agents.py')}"
UP_S = 20.0


@pytest.fixture
def bad_agents(monkeypatch: pytest.MonkeyPatch) -> Iterator[Channel]:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    channel = open_channel("local", relkit=BAD, node_limit_s=UP_S)
    yield channel
    channel.close(5)


def nodes(*names: str) -> tuple[NodeSpec, ...]:
    return tuple(NodeSpec(name) for name in names)


def everything(channel: Channel, count: int) -> dict[str, list[dict[str, Any]]]:
    """By node, until `count` messages came; fails when they do not."""
    found: dict[str, list[dict[str, Any]]] = {}
    for _ in range(count):
        heard = channel.receive(10)
        assert heard is not None, found
        found.setdefault(heard[0], []).append(heard[1])
    assert channel.receive(0.1) is None
    return found


def test_real_agents_say_hello_and_answer_what_is_theirs() -> None:
    channel = open_channel("local")
    try:
        answers = channel.start(read_nodes("n[1-3]").nodes, UP_S)
        assert list(answers) == ["n1", "n2", "n3"]
        assert all(answer.answered for answer in answers.values())
        assert all(abs(answer.clock_skew_s) < 1 for answer in answers.values())
        assert answers["n1"].hello["protocol"] == 1
        channel.send({"op": "ping", "id": 4, "to": {"n2": {}}})
        assert [m["id"] for m in everything(channel, 1)["n2"]] == [4]
        channel.send({"op": "no-such", "id": 5})
        heard = everything(channel, 3)
        assert {m["op"] for ms in heard.values() for m in ms} == {"error"}
        assert "no-such" in heard["n1"][0]["detail"]
        pids = [int(answer.hello["pid"]) for answer in answers.values()]
    finally:
        channel.close(5)
    assert not any(psutil.pid_exists(pid) for pid in pids)


def test_who_does_not_come_up_is_told_with_the_reason(bad_agents: Channel) -> None:
    names = ("good-1", "dead-1", "missing-1", "old-1", "banner-1", "chatter-1", "noisy-1")
    answers = bad_agents.start(nodes(*names), UP_S)
    assert {name for name, a in answers.items() if a.answered} == {"good-1", "noisy-1"}
    assert "exit code 3: OSError: no space left" in answers["dead-1"].detail
    assert "speaks protocol 7" in answers["old-1"].detail
    assert "install the same version" in answers["old-1"].detail
    assert "This account is \\x1b[31mclosed" in answers["banner-1"].detail
    assert "blah" in answers["chatter-1"].detail


def test_a_silent_agent_costs_its_own_limit_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    # Enough for the good one too, which on a busy host took more than 3 s to start.
    limit_s = 3 * PATIENCE
    channel = open_channel("local", relkit=BAD, node_limit_s=limit_s, fanout=1)
    try:
        answers = channel.start(nodes("silent-1", "good-1"), UP_S)
        assert f"did not answer within {limit_s:g} s" in answers["silent-1"].detail
        assert answers["good-1"].answered
    finally:
        channel.close(5)


def test_the_deadline_holds_however_many_are_silent(bad_agents: Channel) -> None:
    silent = nodes(*(f"silent-{n}" for n in range(16)))
    # All of them are started in that time; on a busy host one second was too short for it.
    deadline_s = 2 * PATIENCE
    began_s = time.monotonic()
    answers = bad_agents.start(silent, deadline_s)
    # One after the other they would take this long.
    assert time.monotonic() - began_s < len(silent) * deadline_s
    assert len(answers) == len(silent)
    reason = f"did not answer within {deadline_s:g} s"
    assert all(reason in answer.detail for answer in answers.values())


def test_nodes_whose_turn_never_came_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    channel = open_channel("local", relkit=BAD, fanout=1)
    try:
        answers = channel.start(nodes("silent-1", "good-1"), 1.0)
        assert "before its turn" in answers["good-1"].detail
        assert not answers["good-1"].answered
    finally:
        channel.close(5)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ("garbage-1", "not a JSON object: \\x1b]0;owned\\x07 not json"),
        ("endless-1", "a line of more than 1048576 bytes"),
        ("impostor-1", "tagged as another node's: 'good-1'"),
    ],
)
def test_a_bad_line_ends_that_node_alone(bad_agents: Channel, bad: str, reason: str) -> None:
    answers = bad_agents.start(nodes("good-1", bad), UP_S)
    # The comparison of clocks is the first message, so the fault may be there already.
    assert answers[bad].answered
    bad_agents.send({"op": "ask", "id": 1})
    heard = everything(bad_agents, 2)
    assert heard["good-1"][0]["op"] == "echo"
    assert heard[bad][0]["op"] == "gone"
    assert reason in heard[bad][0]["detail"]
    bad_agents.send({"op": "ask", "id": 2})
    assert list(everything(bad_agents, 1)) == ["good-1"]


def test_an_agent_that_dies_in_mid_round_is_gone_once_after_its_words(bad_agents: Channel) -> None:
    bad_agents.start(nodes("good-1", "dying-1"), UP_S)
    bad_agents.send({"op": "ask", "id": 1})
    heard = everything(bad_agents, 3)
    assert [message["op"] for message in heard["dying-1"]] == ["half", "gone"]
    assert "SIGKILL" in heard["dying-1"][1]["detail"]


def test_what_a_login_shell_complains_of_is_not_why_an_agent_ends(bad_agents: Channel) -> None:
    bad_agents.start(nodes("grumbling-1"), UP_S)
    bad_agents.send({"op": "ask", "id": 1})
    gone = everything(bad_agents, 2)["grumbling-1"][1]
    assert gone["op"] == "gone"
    assert gone["detail"] == "its agent was ended by SIGKILL"


def test_an_agent_that_does_not_read_becomes_gone(
    bad_agents: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("relkit.fleet.conversation.SEND_LIMIT_S", 0.5)
    bad_agents.start(nodes("good-1", "deaf-1"), UP_S)
    bad_agents.send({"op": "ask", "id": 1, "all": {"much": "x" * 900_000}})
    heard = everything(bad_agents, 2)
    assert heard["good-1"][0]["op"] == "echo"
    assert "accepted no message" in heard["deaf-1"][0]["detail"]


def test_clock_skew_is_measured(bad_agents: Channel) -> None:
    answers = bad_agents.start(nodes("good-1", "skewed-1"), UP_S)
    assert abs(answers["good-1"].clock_skew_s) < 5
    assert abs(answers["skewed-1"].clock_skew_s - 3600) < 5


def test_close_ends_even_those_that_do_not_want_to(bad_agents: Channel) -> None:
    answers = bad_agents.start(nodes("good-1", "stubborn-1"), UP_S)
    pid = int(answers["stubborn-1"].hello["pid"])
    bad_agents.close(1.0)
    assert not psutil.pid_exists(pid)
    bad_agents.close(1.0)


def test_a_program_that_is_not_there_is_an_answer_too() -> None:
    channel = open_channel("command", command="/no/such/tool {node}")
    try:
        answers = channel.start(nodes("a", "b"), UP_S)
        assert all("/no/such/tool" in answer.detail for answer in answers.values())
    finally:
        channel.close(1)


def test_a_command_prefix_is_no_shell(tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    command = f"env -u HOME WHO='{{node}} $(touch {trap}); touch {trap}' AT={{address}}"
    channel = open_channel("command", command=command)
    try:
        answers = channel.start((NodeSpec("n1", address="127.0.0.1"),), UP_S)
        assert answers["n1"].answered, answers["n1"].detail
        assert not trap.exists()
    finally:
        channel.close(5)


@pytest.mark.parametrize("command", ["", "ip netns exec", "ip 'netns exec {node}"])
def test_a_command_prefix_that_cannot_work_is_refused(command: str) -> None:
    with pytest.raises(UsageProblem):
        open_channel("command", command=command)


def test_an_unknown_channel_is_refused_with_the_list() -> None:
    with pytest.raises(UsageProblem, match="local"):
        open_channel("pigeon")
    assert "ssh" in KINDS


@pytest.mark.timeout(120)
def test_sixty_four_agents_come_up_small() -> None:
    channel = open_channel("local", node_limit_s=90)
    try:
        answers = channel.start(read_nodes("n[01-64]").nodes, 90)
        assert all(answer.answered for answer in answers.values())
        sizes = [
            psutil.Process(int(answer.hello["pid"])).memory_info().rss
            for answer in answers.values()
        ]
        assert max(sizes) < 60e6
    finally:
        channel.close(5)


def test_each_pipe_carries_its_own_node_s_part_only(bad_agents: Channel) -> None:
    bad_agents.start(nodes("good-1", "good-2", "good-3"), UP_S)
    bad_agents.send({"op": "echo", "id": 1, "to": {"good-1": {"a": 1}, "good-3": {"b": 2}}})
    heard = everything(bad_agents, 2)
    assert {name: said[0]["to"] for name, said in heard.items()} == {
        "good-1": {"good-1": {"a": 1}},
        "good-3": {"good-3": {"b": 2}},
    }
