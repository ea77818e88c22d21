"""What follows from a network check for a job, and what is done about a bad node."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from relkit.errors import UsageProblem
from relkit.launch.job.node_name import node_name
from relkit.launch.netcheck import bad_node
from relkit.launch.netcheck.node_info import (
    NodeInfo,
    decode_node_info,
    is_loopback,
    unique_names,
)
from relkit.launch.netcheck.verdict import decide, how_to_go_on
from relkit.netcheck.model import Diagnosis, NetVerdict
from relkit.process.command_words import command_words
from relkit.process.interruptible_wait import wait_readable

DEAD = Diagnosis(("a",), "node", "a", "dead", 1.0, 1.0, ("said nothing",))
SLOW = Diagnosis(("b",), "node", "b", "slow out", 0.5, 0.99, ("half of the median",))
LINK = Diagnosis(("a", "c"), "link", "a - c", "dead", 1.0, 0.9, ("no answer",))
UPLINK = Diagnosis(("c", "d"), "group", "switch s1", "slow uplink", 0.5, 0.9)


def test_a_dead_node_leaves_and_a_slow_one_only_when_asked() -> None:
    verdict = NetVerdict((DEAD, SLOW))
    stays = decide(verdict, {}, exclude_stragglers=False)
    assert stays.leave == {"a": "dead: said nothing"}
    assert len(stays.warnings) == 1
    assert "b is slow out" in stays.warnings[0]
    leaves = decide(verdict, {}, exclude_stragglers=True)
    assert list(leaves.leave) == ["a", "b"]
    devices = {"b": "slow device", "c": "slow device"}
    more = decide(verdict, {}, exclude_stragglers=True, slow_devices=devices)
    assert more.leave == {**leaves.leave, "c": "slow device"}
    assert leaves.warnings == ()


def test_links_uplinks_and_open_questions_make_no_node_leave() -> None:
    verdict = NetVerdict((LINK, UPLINK), inconclusive=((("e", "f"), "e or f is slow"),))
    found = decide(verdict, {}, exclude_stragglers=True)
    assert found.leave == {}
    assert found.warnings == (
        "a - c is dead: no answer", "switch s1 is slow uplink", "e or f is slow",
    )  # fmt: skip


def test_a_failed_link_check_convicts_whatever_the_network_does() -> None:
    found = decide(NetVerdict((SLOW,)), {"b": "2 of 4 links"}, exclude_stragglers=False)
    assert found.leave == {"b": "2 of 4 links"}
    assert found.warnings == ()


@pytest.mark.parametrize(
    ("nodes", "leaving", "min_nodes", "again", "loses", "words"),
    [
        (4, 1, 3, True, False, ""),
        (4, 2, 3, True, False, "2 of 4 nodes are left, and the job needs 3"),
        (4, 1, 3, False, False, "static"),
        (4, 1, 3, True, True, "store"),
        (2, 2, 1, True, False, "0 of 2"),
    ],
)
def test_when_a_job_goes_on(
    nodes: int, leaving: int, min_nodes: int, again: bool, loses: bool, words: str
) -> None:
    logged = how_to_go_on(
        nodes, leaving, min_nodes=min_nodes, can_meet_again=again, loses_store=loses
    )
    assert words in logged
    assert bool(logged) == bool(words)


def test_places_survive_the_store_and_strange_notes_do_not() -> None:
    node_info = NodeInfo(3, "n3", "10.0.0.3", "abc", True, "lost")
    assert decode_node_info(node_info.encode(), 3) == node_info
    assert decode_node_info(node_info.encode(), 2) is None
    for note in (
        b"",
        b"[]",
        b'{"number": 3}',
        b'{"number": 3, "name": "-x"}',
        b"\xff",
        b"[" * 9999,
    ):
        assert decode_node_info(note, 3) is None
    assert decode_node_info(NodeInfo(3, "a b").encode(), 3) is None


def test_names() -> None:
    assert unique_names([NodeInfo(0, "h"), NodeInfo(1, "g"), NodeInfo(2, "h")]) == {
        0: "h-0",
        1: "g",
        2: "h-2",
    }
    assert node_name({"SLURMD_NODENAME": "s1", "NODE_NAME": "k1"}) == "s1"
    assert node_name({"SLURMD_NODENAME": "-x; reboot", "NODE_NAME": "k1"}) == "k1"
    assert is_loopback("127.0.1.1")
    assert is_loopback("")
    assert not is_loopback("10.0.0.1")


@pytest.mark.parametrize("text", ["", "  ", "touch 'x"])
def test_a_hook_that_is_none(text: str) -> None:
    with pytest.raises(UsageProblem):
        command_words("--on-bad-node", text)


def test_the_hook_gets_the_name_as_one_word_and_no_shell(tmp_path: Path) -> None:
    logged: list[str] = []
    words = command_words("--on-bad-node", f"touch '{tmp_path}/{{node}} $(id)'")
    bad_node.act(words, "n1", logged.append)
    assert [path.name for path in tmp_path.iterdir()] == ["n1 $(id)"]
    assert logged[-1].endswith("ran")


def test_a_hook_that_fails_hangs_or_is_not_there() -> None:
    logged: list[str] = []
    bad_node.act(("false",), "n1", logged.append)
    bad_node.act(("/no/such/hook",), "n1", logged.append)
    began = time.monotonic()
    hang = (sys.executable, "-c", "import signal; signal.pause()")
    bad_node.act(hang, "n1", logged.append, timeout_s=0.3)
    assert time.monotonic() - began < 5.0
    assert "ended with code 1" in logged[0]
    assert "cannot run '/no/such/hook'" in logged[1]
    assert "took longer than 0.3 s" in logged[2]


# Has a helper, which signals the launcher as soon as both run.
_SIGNALS = """
import os, signal, subprocess, sys
pipe, launcher = sys.argv[1:]
if not os.fork():
    source = open(pipe, "w")
    os.kill(int(launcher), signal.SIGTERM)
signal.alarm(60)
signal.pause()
"""


class Terminated(Exception):
    """SIGTERM came."""


def test_a_signal_meanwhile_ends_the_hook_and_what_it_has_started(tmp_path: Path) -> None:
    def terminate(_number: int, _frame: object) -> None:
        raise Terminated

    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    helper = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    before = signal.signal(signal.SIGTERM, terminate)
    logged: list[str] = []
    hook = (sys.executable, "-c", _SIGNALS, str(pipe), str(os.getpid()))
    try:
        with pytest.raises(Terminated):
            bad_node.act(hook, "n1", logged.append)
        # The helper had the other end open.
        assert wait_readable(helper, 20.0)
    finally:
        signal.signal(signal.SIGTERM, before)
        os.close(helper)
    (line,) = logged
    assert line.endswith("was ended with the launcher")


def test_without_a_hook_the_recipes_are_printed_and_nothing_runs() -> None:
    logged: list[str] = []
    bad_node.act((), "n1", logged.append)
    assert any("kubectl taint --overwrite nodes n1 " in line for line in logged)
    assert any("scontrol update NodeName=n1 State=DRAIN" in line for line in logged)
    logged.clear()
    bad_node.act(("touch", "{node}"), "--force", logged.append)
    assert logged == [
        "this node's name '--force' is not safe to pass to a command; nothing was run"
    ]
