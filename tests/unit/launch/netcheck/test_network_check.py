"""The network check's options, its channel through a real store, and whole checks in threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any

import pytest
from click.testing import CliRunner
from torch._C._distributed_c10d import PrefixStore, TCPStore

from relkit.cli import cli
from relkit.errors import RelkitError, UsageProblem
from relkit.findings import Finding, Report, Status
from relkit.fleet.agent import Request
from relkit.hosts import NodeSpec
from relkit.launch.job.attempt import Attempt, Channels
from relkit.launch.job.exchange import ExchangeBroken, Mailbox, MemoryMailbox, StoreMailbox
from relkit.launch.job.store_host import listens_on, store_endpoint
from relkit.launch.netcheck import network_check as module
from relkit.launch.netcheck.network_check import (
    CheckSettings,
    NetworkCheck,
    NodeFailedCheck,
    TooFewNodes,
)
from relkit.launch.netcheck.store_channel import StoreAgent, StoreChannel

NUMBERS = {"a": 0, "b": 1}
NODES = [NodeSpec("a", address="127.0.0.1"), NodeSpec("b", address="127.0.0.1")]


@pytest.fixture
def store() -> TCPStore:
    return TCPStore("127.0.0.1", 0, 1, True, timedelta(seconds=5))


def echo(request: Request) -> Iterator[Mapping[str, Any]]:
    yield {"text": request.fields["text"]}


def attempt_with(box: Mailbox, *, can_meet_again: bool = True) -> Attempt:
    return Attempt(
        "job", nodes=box.nodes, can_meet_again=can_meet_again,
        channels=Channels(open_meeting_mailbox=lambda _purpose: box),
        own_address=lambda _peer: "127.0.0.1",
    )  # fmt: skip


def mailbox(store: TCPStore, node: int, nodes: int = 2) -> StoreMailbox:
    return StoreMailbox(PrefixStore("job", store), node, nodes, "check")


def test_a_conversation_through_the_store(store: TCPStore) -> None:
    agents = [StoreAgent(mailbox(store, i), i, name, {"echo": echo}) for name, i in NUMBERS.items()]
    for agent in agents:
        agent.start()
    channel = StoreChannel(mailbox(store, 0), NUMBERS)
    answers = channel.start(NODES, 10.0)
    assert all(answers[name].answered for name in NUMBERS), answers
    large = "x" * 300_000
    channel.send({"op": "echo", "id": 1, "all": {"text": "all"}, "to": {"b": {"text": large}}})
    assert channel.receive(10.0) == ("b", {"node": "b", "op": "echo", "id": 1, "text": large})
    channel.send({"op": "echo", "id": 2, "all": {"text": "both"}})
    heard = [channel.receive(10.0), channel.receive(10.0)]
    assert sorted(item[0] for item in heard if item) == ["a", "b"]
    assert channel.receive(0.05) is None
    agents[1].stop()
    gone = channel.receive(10.0)
    assert gone is not None
    assert (gone[0], gone[1]["op"]) == ("b", "gone")
    channel.close(5.0)
    channel.close(5.0)
    agents[0].stop()
    assert not [t for t in threading.enumerate() if t.name.startswith("relkit-netcheck")]


def test_a_silent_node_and_a_liar_are_no_answer(store: TCPStore) -> None:
    mailbox(store, 1).put("from/1/0", b'{"node": "a", "op": "hello", "protocol": 1}')
    channel = StoreChannel(mailbox(store, 0), NUMBERS)
    began = time.monotonic()
    answers = channel.start(NODES, 0.3)
    assert time.monotonic() - began < 5.0
    assert not any(answer.answered for answer in answers.values())
    assert "sent nothing" in answers["a"].detail
    assert "another node" in answers["b"].detail
    channel.send({"op": "echo", "id": 1})
    assert channel.receive(0.05) is None
    channel.close(1.0)


class BrokenMailbox(MemoryMailbox):
    """A store that has gone."""

    def put(self, key: str, data: bytes) -> None:
        raise ExchangeBroken("the rendezvous store failed")

    def get(self, key: str) -> bytes | None:
        raise ExchangeBroken("the rendezvous store failed")


def test_a_broken_store_ends_the_agent_and_lets_the_job_go_on() -> None:
    agent = StoreAgent(BrokenMailbox(0, 2), 0, "a", {"echo": echo})
    agent.start()
    agent.stop()
    assert not [t for t in threading.enumerate() if t.name.startswith("relkit-netcheck")]
    logged: list[str] = []
    check = NetworkCheck(CheckSettings(), logged.append, lambda _report: None)
    assert check.passed(attempt_with(BrokenMailbox(0, 2)))
    assert "skipped" in logged[0]


def test_the_server_of_the_store_is_known(store: TCPStore) -> None:
    host, port = store_endpoint(PrefixStore("b", PrefixStore("a", store)))
    assert (host, port) == ("127.0.0.1", store.port)
    assert listens_on(port)
    assert store_endpoint(object()) == ("", 0)


class Job:
    """The nodes of a job as threads of this test, each with its own connection to the store."""

    def __init__(self, settings: list[CheckSettings]) -> None:
        self.logged: list[list[str]] = [[] for _ in settings]
        self.shown: list[Report] = []
        self.checks = [
            NetworkCheck(one, logged.append, self.shown.append)
            for one, logged in zip(settings, self.logged, strict=True)
        ]

    def meet(self, store: TCPStore, round_name: str, can_meet_again: bool = True) -> list[object]:
        """One meeting; what passed() returned or raised on each node."""
        found: list[object] = [None] * len(self.checks)

        def node(number: int) -> None:
            box = StoreMailbox(store, number, len(self.checks), round_name)
            try:
                found[number] = self.checks[number].passed(
                    attempt_with(box, can_meet_again=can_meet_again)
                )
            except RelkitError as error:
                found[number] = error

        threads = [
            threading.Thread(target=node, args=(number,)) for number in range(len(self.checks))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(50)
        return found


def links(status: Status) -> Callable[[], Report]:
    """A link check with this result: the vendor's hardware is not here."""
    return lambda: Report("linkcheck", (Finding("RK-LINK-001", status, "a box is dark"),))


def test_a_failed_link_check_sends_one_node_away_and_the_rest_meets_again(
    store: TCPStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RELKIT_NODE_NAME", "h")
    good, bad = CheckSettings(links=links(Status.OK)), CheckSettings(links=links(Status.FAIL))
    job = Job([good, bad, good])
    found = job.meet(store, "0")
    assert found[0] is False
    assert found[2] is False
    assert isinstance(found[1], NodeFailedCheck)
    assert "a box is dark" in str(found[1])
    assert any("h-1 leaves the job" in line for line in job.logged[0])
    # The link check's own report on its node, and the network's on node 0.
    assert sorted(report.command for report in job.shown) == ["linkcheck", "netcheck"]
    del job.checks[1]
    assert job.meet(store, "1") == [True, True]
    assert (
        "network check: all nodes passed the last check together; not measured again"
        in job.logged[0]
    )


def test_a_job_that_cannot_shrink_ends(store: TCPStore) -> None:
    bad = CheckSettings(links=links(Status.FAIL))
    found = Job([CheckSettings(min_nodes=2), bad]).meet(store, "0")
    assert isinstance(found[0], TooFewNodes)
    assert isinstance(found[1], NodeFailedCheck)
    found = Job([CheckSettings(), bad]).meet(store, "1", can_meet_again=False)
    assert isinstance(found[0], TooFewNodes)
    assert "static" in str(found[0])


def test_a_new_node_makes_all_be_measured_again(store: TCPStore) -> None:
    job = Job([CheckSettings(), CheckSettings()])
    assert job.meet(store, "0") == [True, True]
    job.checks[1] = NetworkCheck(CheckSettings(), job.logged[1].append, job.shown.append)
    assert job.meet(store, "1") == [True, True]
    assert len(job.shown) == 2


def test_after_a_start_of_workers_all_are_measured_again(store: TCPStore) -> None:
    job = Job([CheckSettings(), CheckSettings()])
    assert job.meet(store, "0") == [True, True]
    for check in job.checks:
        check.forget()
    assert job.meet(store, "1") == [True, True]
    assert len(job.shown) == 2


def test_a_job_of_fixed_size_goes_on_where_another_node_may_come(store: TCPStore) -> None:
    job = Job([CheckSettings(min_nodes=2), CheckSettings(links=links(Status.FAIL))])
    job.checks[0].may_replace = lambda: True
    first, second = job.meet(store, "0")
    assert first is False
    assert isinstance(second, NodeFailedCheck)


@pytest.mark.long
def test_the_probe_that_was_asked_for_is_used(store: TCPStore) -> None:
    job = Job([CheckSettings(probe="gloo"), CheckSettings(probe="gloo")])
    assert job.meet(store, "0") == [True, True]
    (report,) = job.shown
    assert report.facts["probe"] == "gloo"
    assert "network check: measuring 2 nodes with gloo" in job.logged[0]
    assert "network check: 2 nodes, no fault" in job.logged[1]


def test_where_the_probe_cannot_run_nothing_is_said_to_be_healthy(
    store: TCPStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    job = Job([CheckSettings(probe="ib"), CheckSettings(probe="ib")])
    assert job.meet(store, "0") == [True, True]
    for logged in job.logged:
        assert not any("no fault" in line for line in logged)
        assert any(line.startswith("network check: ib could not measure") for line in logged)


def test_a_node_that_takes_no_part_is_named(
    store: TCPStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "NODE_INFO_S", 0.2)
    logged: list[str] = []
    check = NetworkCheck(CheckSettings(), logged.append, lambda _report: None)
    box = StoreMailbox(store, 0, 2, "0")
    assert check.passed(attempt_with(box))
    assert "network check: node 1 did not take part" in logged


def test_whatever_ends_node_0_the_others_do_not_wait(
    store: TCPStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_options: object, **_more: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "run_check", interrupted)
    logged: list[str] = []
    other = NetworkCheck(CheckSettings(), logged.append, lambda _report: None)
    follower = threading.Thread(
        target=other.passed,
        args=(attempt_with(StoreMailbox(store, 1, 2, "0")),),
    )
    follower.start()
    leader = NetworkCheck(CheckSettings(), logged.append, lambda _report: None)
    with pytest.raises(KeyboardInterrupt):
        leader.passed(attempt_with(StoreMailbox(store, 0, 2, "0")))
    follower.join(20)
    assert not follower.is_alive()
    assert "network check: node 0 could not run it" in logged


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (["--switchbox-check"], "--switchbox-check needs --network-check"),
        (["--exclude-straggler"], "--exclude-straggler needs --network-check"),
        (["--network-probe", "gloo"], "--network-probe needs --network-check"),
        (["--on-bad-node", "true"], "--on-bad-node needs --network-check"),
        (
            ["--network-check", "--min_bandwidth", "5"],
            "--min-bandwidth needs --switchbox-check",
        ),
        (["--network-check", "--switchbox-check", "--box-pairs", "0:1", "2:2"], "2:2"),
        (["--network-check", "--on-bad-node", "'"], "--on-bad-node"),
        (["--network-check", "--switchbox-check", "--box-pairs", "0:0"], "0:0"),
        (["--network-check", "--switchbox_check", "--box_pairs", "0:1"], "2 good channels"),
    ],
)
def test_options_that_cannot_be(line: list[str], words: str) -> None:
    with pytest.raises(UsageProblem) as raised:
        CliRunner().invoke(cli, ["launch", *line, __file__], catch_exceptions=False)
    assert words in str(raised.value)
