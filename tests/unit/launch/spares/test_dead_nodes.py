"""A silent node is dead sooner where its host does not answer either."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from relkit.launch.spares.dead_nodes import DeadNodes
from relkit.launch.spares.host_probes import HostProbes
from relkit.launch.spares.settings import ask_after_s, dead_after_s, lost_after_s

# With up to 16 nodes, up to 64, and more: s.
HEARTBEATS_S = (1, 2, 5)
HEARTBEAT_S = HEARTBEATS_S[0]


class Probes(HostProbes):
    """Some hosts do not answer."""

    def __init__(self, *deaf: str) -> None:
        super().__init__(0)
        self.deaf, self.asked = frozenset(deaf), list[tuple[frozenset[str], frozenset[str]]]()

    def lost(self, hosts: Collection[str], silent: Collection[str]) -> frozenset[str]:
        self.asked.append((frozenset(hosts), frozenset(silent)))
        return self.deaf & frozenset(silent)


HOSTS = {"a": "ha", "b": "hb"}
BEATS = {"a": 1, "b": 1, "c": 1}


def looks(dead: DeadNodes, last_s: int, hosts: dict[str, str] = HOSTS) -> dict[int, dict[str, str]]:
    return {s: dead.why_dead(["a", "b", "c"], hosts, BEATS, float(s)) for s in range(last_s + 1)}


def test_silence_alone_takes_three_heartbeats() -> None:
    seen = looks(DeadNodes(HEARTBEAT_S), 7)
    assert not any(seen[s] for s in range(7))
    assert seen[7] == dict.fromkeys("abc", "no sign of life for 7 s")


def test_a_host_that_does_not_answer_is_dead_sooner_than_one_that_does() -> None:
    probes = Probes("hb")
    seen = looks(DeadNodes(HEARTBEAT_S, probes), 7)
    assert not any(seen[s] for s in range(4))
    why = "no sign of life for 4 s, and its host does not answer"
    assert seen[4] == seen[6] == {"b": why}
    # The host of the one is there, that of the other is not known.
    assert seen[7] == {"a": "no sign of life for 7 s", "b": why, "c": "no sign of life for 7 s"}


def test_hosts_are_known_early_and_asked_when_a_heartbeat_is_late() -> None:
    probes = Probes()
    looks(DeadNodes(HEARTBEAT_S, probes), 3)
    everyone = frozenset({"ha", "hb"})
    assert probes.asked == [*[(everyone, frozenset())] * 3, (everyone, everyone)]


def test_a_deaf_host_of_a_node_that_gives_signs_of_life_kills_nobody() -> None:
    dead, probes = DeadNodes(HEARTBEAT_S, Probes("ha")), dict[int, dict[str, str]]()
    for now in range(12):
        probes[now] = dead.why_dead(["a"], HOSTS, {"a": now // 2}, float(now))
    assert not any(probes.values())


class Outage(HostProbes):
    """A network that is away for a while; a question takes most of the second between two looks."""

    def __init__(self, heartbeat_s: float, begin_s: float, end_s: float) -> None:
        super().__init__(0)
        self.heartbeat_s, self.begin_s, self.end_s, self.now_s = heartbeat_s, begin_s, end_s, 0.0
        self.asked_s: float | None = None

    def lost(self, hosts: Collection[str], silent: Collection[str]) -> frozenset[str]:
        asked_s, self.asked_s = self.asked_s, self.now_s if silent else None
        if not silent or asked_s is None:
            return frozenset()
        is_lost = self.begin_s <= asked_s and asked_s + 0.9 <= self.end_s
        return frozenset(silent) if is_lost else frozenset()

    def heartbeat(self) -> int:
        """The newest one that has come: TCP sends again what was lost, less and less often."""
        come = [0]
        for number in range(40):
            sent_s = number * self.heartbeat_s
            tries = (sent_s + after_s for after_s in (0.0, 0.2, 0.6, 1.4, 3.0, 6.2, 12.6))
            come_s = next((t for t in tries if not self.begin_s <= t < self.end_s), 1e9)
            if come_s <= self.now_s:
                come.append(number)
        return max(come)


def dead_for(outage: Outage) -> float | None:
    """When the node is found dead, s; looks once a second."""
    dead = DeadNodes(outage.heartbeat_s, outage)
    for look in range(30):
        outage.now_s = look * 1.003 + 0.05
        if dead.why_dead(["a"], HOSTS, {"a": outage.heartbeat()}, outage.now_s):
            return outage.now_s
    return None


@pytest.mark.parametrize("heartbeat_s", HEARTBEATS_S)
def test_an_outage_of_3_s_is_survived_whenever_it_begins(heartbeat_s: float) -> None:
    for eighth in range(80):
        begin_s = eighth / 8
        assert dead_for(Outage(heartbeat_s, begin_s, begin_s + 3.0)) is None, begin_s


@pytest.mark.parametrize("heartbeat_s", HEARTBEATS_S)
def test_a_host_that_is_lost_is_found_soon_after_its_last_heartbeat(heartbeat_s: float) -> None:
    for eighth in range(80):
        begin_s = 5.0 + eighth / 8
        found_s = dead_for(Outage(heartbeat_s, begin_s, 1e9))
        assert found_s is not None
        assert 3.0 <= found_s - begin_s <= heartbeat_s + 4.2, begin_s


def test_the_limits_follow_the_heartbeat() -> None:
    for heartbeat_s in HEARTBEATS_S:
        assert ask_after_s(heartbeat_s) < lost_after_s(heartbeat_s) < dead_after_s(heartbeat_s)
    # torch's own heartbeats, of large jobs.
    assert (lost_after_s(5), dead_after_s(5)) == (8.0, 16.0)
