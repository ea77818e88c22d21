"""Rounds by switch, in which uplinks are also loaded on purpose by all of their nodes at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from relkit.netcheck.measure import schedule
from relkit.netcheck.measure.load_rounds import LoadRounds, most_load_rounds, node_pairs
from relkit.netcheck.measure.round_robin import rounds_needed
from relkit.netcheck.measure.schedule import Pairs, Schedule
from relkit.netcheck.model import Edge, Thresholds
from relkit.netcheck.solve.load_tests import (
    clear_of,
    decode,
    least_share,
    load_tests,
    load_verdict,
    normal_gbps,
)

_INNER_ROUNDS = 2
_MIN_MEMBERS = 2
_MIN_SWITCHES = 2


class LoadedSchedule:
    """Rounds inside switches, rounds under load, then those between switches and confirming ones.

    The rounds under load come before those between switches, because an uplink that is too narrow
    for many pairs makes each of them look slow there, and none of these is at fault.

    Args:
        base: the schedule by switch.
        names: all nodes.
        groups: node -> switch.
        thresholds: what counts as slow.
    """

    def __init__(
        self,
        base: Schedule,
        names: Sequence[str],
        groups: Mapping[str, str],
        thresholds: Thresholds,
    ) -> None:
        self.under_load = False
        self._base = base
        self._thresholds = thresholds
        self._groups = {name: groups[name] for name in names if name in groups}
        self._names = tuple(names)
        largest = max((len(nodes) for nodes in self._members(names).values()), default=0)
        self._inner_left = min(_INNER_ROUNDS, rounds_needed(largest))
        self._usable: dict[str, list[str]] = {}
        self._load: LoadRounds | None = None
        self._is_load_over = False
        self.max_rounds = base.max_rounds + most_load_rounds(len(set(self._groups.values())), 1)

    def next_round(self, edges: Sequence[Edge]) -> Pairs:
        """See Schedule."""
        plain = [edge for edge in edges if not edge.under_load]
        loaded = [edge for edge in edges if edge.under_load]
        self.under_load = False
        if self._inner_left:
            self._inner_left -= 1
            return self._base.next_round(plain)
        if not self._is_load_over and (pairs := self._next_load(plain, loaded)):
            self.under_load = True
            return tuple(pairs)
        load = load_verdict(plain, loaded, self._groups, self._thresholds.slow_fraction)
        return self._base.next_round(clear_of(plain, load, self._groups))

    def _next_load(self, plain: Sequence[Edge], loaded: Sequence[Edge]) -> list[tuple[str, str]]:
        normal = normal_gbps(plain, self._groups)
        floor = least_share(plain, self._groups, self._thresholds.slow_fraction)
        if self._load is None:
            fit = [name for name in self._names if self._is_fast(name, plain, floor * normal)]
            self._usable = {
                switch: nodes
                for switch, nodes in self._members(fit).items()
                if len(nodes) >= _MIN_MEMBERS
            }
            self._usable = _of_like_size(self._usable)
            sizes = {switch: len(nodes) for switch, nodes in self._usable.items()}
            self._load = LoadRounds(sizes)
        tests = load_tests(loaded, self._groups, normal, floor)
        if matched := self._load.next_round(tests):
            return node_pairs(matched, self._usable)
        self._is_load_over = True
        return node_pairs(self._load.alone(decode(tests)), self._usable, alone=True)

    def _members(self, names: Sequence[str]) -> dict[str, list[str]]:
        members: dict[str, list[str]] = {}
        for name in names:
            if name in self._groups:
                members.setdefault(self._groups[name], []).append(name)
        return members

    def _is_fast(self, name: str, edges: Sequence[Edge], least_gbps: float) -> bool:
        """It was at full speed inside its switch, both ways: a slow one would slow the test."""
        sent = [edge.bandwidth_gbps for edge in edges if edge.source == name and not edge.failure]
        got = [edge.bandwidth_gbps for edge in edges if edge.target == name and not edge.failure]
        return min(max(sent, default=0.0), max(got, default=0.0)) >= least_gbps > 0.0


def _of_like_size(members: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """As many nodes of each switch as two in three of the switches have: none below two of them.

    An uplink that has carried three pairs is not cleared of a test with four.
    """
    if len(members) < _MIN_SWITCHES:
        return {}
    most = sorted(len(nodes) for nodes in members.values())[(len(members) - 1) // 3]
    return {switch: nodes[:most] for switch, nodes in members.items()}


def by_switch(
    nodes: Sequence[str], topology: Mapping[str, str], *, thresholds: Thresholds | None = None
) -> Schedule:
    """As schedule.groups, and each uplink is loaded by all of its nodes at once.

    Args:
        nodes, topology, thresholds: see schedule.groups.
    """
    base = schedule.groups(nodes, topology, thresholds=thresholds)
    return LoadedSchedule(base, nodes, topology, thresholds or Thresholds())
