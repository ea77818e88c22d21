"""Who sends no heartbeat is dead after a while, by the clock of whoever looks."""

from __future__ import annotations

from relkit.launch.job.silence import Silence
from relkit.launch.spares.settings import HEARTBEAT_S, HEARTBEATS_OF_TORCH, dead_after_s


def test_only_a_change_is_a_sign_of_life() -> None:
    silence = Silence(5.0)
    nodes = ["a", "b", "c"]
    dead = [silence.silent(nodes, {"a": now // 3, "b": 7}, float(now)) for now in range(9)]
    # c has never sent one.
    assert dead == [[]] * 5 + [["b", "c"]] * 4


def test_who_was_away_itself_accuses_nobody() -> None:
    silence = Silence(5.0)
    assert silence.silent(["a"], {"a": 1}, 0.0) == []
    assert silence.silent(["a"], {"a": 1}, 1.0) == []
    assert silence.silent(["a"], {"a": 1}, 100.0) == []
    dead = [silence.silent(["a"], {"a": 1}, 100.0 + more) for more in range(1, 6)]
    assert dead == [[], [], [], ["a"], ["a"]]


def test_a_node_is_looked_at_from_when_it_comes() -> None:
    silence = Silence(2.0)
    for now in range(10):
        assert silence.silent([], {"a": 1}, float(now)) == []
    assert silence.silent(["a"], {"a": 1}, 10.0) == []
    assert silence.silent(["a"], {"a": 1}, 12.0) == ["a"]


def test_it_is_seen_well_before_torch_sees_it() -> None:
    assert dead_after_s(HEARTBEAT_S) == 7.0
    assert dead_after_s(HEARTBEAT_S) < HEARTBEAT_S * HEARTBEATS_OF_TORCH
    # torch's limit, by the clocks of two hosts, is not lower than it was.
    assert HEARTBEAT_S * HEARTBEATS_OF_TORCH >= 15
