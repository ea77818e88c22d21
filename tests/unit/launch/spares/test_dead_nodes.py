"""A silent node is dead sooner where its host does not answer either."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from relkit.launch.spares.dead_nodes import DeadNodes
from relkit.launch.spares.host_probes import HostProbes
from relkit.launch.spares.settings import (
    HEARTBEAT_S,
    MAX_OFTEN,
    UNANSWERED_S,
    ask_after_s,
    dead_after_s,
    look_s,
    lost_after_s,
)

# That of up to 64 nodes, and torch's: s.
HEARTBEATS_S = (HEARTBEAT_S, 5)


class Probes(HostProbes):
    """Some hosts do not answer, for as long as is said."""

    def __init__(self, **unanswered_s: float) -> None:
        super().__init__(0)
        self.said, self.asked = unanswered_s, list[tuple[frozenset[str], frozenset[str]]]()

    def unanswered_s(self, hosts: Collection[str], asked: Collection[str]) -> dict[str, float]:
        self.asked.append((frozenset(hosts), frozenset(asked)))
        return {host: for_s for host, for_s in self.said.items() if host in asked}


HOSTS = {"a": "ha", "b": "hb"}
BEATS = {"a": 1, "b": 1, "c": 1}


def looks(dead: DeadNodes, last_s: int, hosts: dict[str, str] = HOSTS) -> dict[int, dict[str, str]]:
    return {s: dead.why_dead(["a", "b", "c"], hosts, BEATS, float(s)) for s in range(last_s + 1)}


def test_silence_alone_takes_three_heartbeats() -> None:
    seen = looks(DeadNodes(HEARTBEAT_S), 7)
    assert not any(seen[s] for s in range(7))
    assert seen[7] == dict.fromkeys("abc", "no sign of life for 7 s")


def test_a_host_that_does_not_answer_is_dead_sooner_than_one_that_does() -> None:
    probes = Probes(hb=UNANSWERED_S)
    seen = looks(DeadNodes(HEARTBEAT_S, probes), 7)
    assert not any(seen[s] for s in range(4))
    why = "no sign of life for 4 s, and its host does not answer"
    assert seen[4] == seen[6] == {"b": why}
    # The host of the one is there, that of the other is not known.
    assert seen[7] == {"a": "no sign of life for 7 s", "b": why, "c": "no sign of life for 7 s"}


def test_a_host_that_answered_a_moment_ago_is_not_lost() -> None:
    seen = looks(DeadNodes(HEARTBEAT_S, Probes(hb=UNANSWERED_S - 0.1)), 7)
    assert not any(seen[s] for s in range(7))
    assert seen[7] == dict.fromkeys("abc", "no sign of life for 7 s")


def test_hosts_are_asked_all_the_time() -> None:
    """That from which moment on one does not answer is known before a heartbeat is late."""
    probes = Probes()
    looks(DeadNodes(HEARTBEAT_S, probes), 3)
    everyone = frozenset({"ha", "hb"})
    assert probes.asked == [(everyone, everyone)] * 4


def test_many_hosts_are_asked_when_a_heartbeat_is_late() -> None:
    probes = Probes()
    hosts = {f"n{number}": f"h{number}" for number in range(MAX_OFTEN + 1)}
    dead = DeadNodes(5, probes)
    for now_s in range(8):
        dead.why_dead(hosts, hosts, {**dict.fromkeys(hosts, 1), "n1": now_s // 5}, float(now_s))
    everyone = frozenset(hosts.values())
    assert probes.asked == [(everyone, frozenset())] * 7 + [(everyone, everyone - {"h1"})]


def test_a_deaf_host_of_a_node_that_gives_signs_of_life_kills_nobody() -> None:
    dead, seen = DeadNodes(HEARTBEAT_S, Probes(ha=99.0)), dict[int, dict[str, str]]()
    for now in range(12):
        seen[now] = dead.why_dead(["a"], HOSTS, {"a": now // 2}, float(now))
    assert not any(seen.values())


class Outage(HostProbes):
    """A network that is away for a while.

    Args:
        heartbeat_s: from one to the next; begin_s, end_s: of the outage.
        late_s: from when on it is away, until that is known of a question whose time is up.
    """

    def __init__(
        self, heartbeat_s: float, begin_s: float, end_s: float, late_s: float = 0.0
    ) -> None:
        super().__init__(0)
        self.heartbeat_s, self.begin_s, self.end_s, self.now_s = heartbeat_s, begin_s, end_s, 0.0
        self.late_s = late_s
        self.first_s: float | None = None

    def unanswered_s(self, hosts: Collection[str], asked: Collection[str]) -> dict[str, float]:
        if not asked or not self.begin_s <= self.now_s < self.end_s:
            self.first_s = None
            return {}
        self.first_s = self.now_s if self.first_s is None else self.first_s
        return dict.fromkeys(asked, max(0.0, self.now_s - self.late_s - self.first_s))

    def heartbeats_s(self) -> list[float]:
        """When they come: TCP sends again what was lost, ever less often; the next one waits."""
        come, free_s = [], 0.0
        for number in range(40):
            sent_s = max(number * self.heartbeat_s, free_s)
            tries = (sent_s + after_s for after_s in (0.0, 0.2, 0.6, 1.4, 3.0, 6.2, 12.6))
            free_s = next((t for t in tries if not self.begin_s <= t < self.end_s), 1e9)
            come.append(free_s)
        return come


def dead_for(outage: Outage) -> float | None:
    """When the node is found dead, s."""
    dead, come_s = DeadNodes(outage.heartbeat_s, outage), outage.heartbeats_s()
    outage.now_s = 0.05
    while outage.now_s < 30.0:
        newest = sum(at_s <= outage.now_s for at_s in come_s)
        if dead.why_dead(["a"], HOSTS, {"a": newest}, outage.now_s):
            return outage.now_s
        outage.now_s += look_s(outage.heartbeat_s) + 0.002
    return None


@pytest.mark.parametrize("heartbeat_s", HEARTBEATS_S)
def test_an_outage_of_3_s_is_survived_whenever_it_begins(heartbeat_s: float) -> None:
    for sixteenth in range(160):
        begin_s = sixteenth / 16
        assert dead_for(Outage(heartbeat_s, begin_s, begin_s + 3.0)) is None, begin_s


@pytest.mark.parametrize(
    ("heartbeat_s", "soonest_s", "latest_s"), [(HEARTBEAT_S, 3.75, 4.5), (5, 4.9, 11.1)]
)
def test_a_host_that_is_lost_is_found_soon(
    heartbeat_s: float, soonest_s: float, latest_s: float
) -> None:
    for sixteenth in range(160):
        begin_s = 5.0 + sixteenth / 16
        # A pause between two questions, and the time for two.
        found_s = dead_for(Outage(heartbeat_s, begin_s, 1e9, late_s=0.75))
        assert found_s is not None
        assert soonest_s <= found_s - begin_s <= latest_s, begin_s


def test_the_limits_follow_the_heartbeat() -> None:
    assert [look_s(each) for each in HEARTBEATS_S] == [0.25, 1.0]
    assert [ask_after_s(each) for each in HEARTBEATS_S] == [2.55, 6.3]
    assert [lost_after_s(each) for each in HEARTBEATS_S] == [4.0, 10.0]
    assert [dead_after_s(each) for each in HEARTBEATS_S] == [7.0, 16.0]
