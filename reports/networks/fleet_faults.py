"""What a netcheck report says of each node and link, and for which nodes a picture has room."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MAX_ALIKE, MAX_ALIKE_BEHIND = 12, 2
"""Nodes without a fault that are drawn one by one, in all and behind a switch; more are a box."""

MAX_FAULTY = 200
"""Nodes with a fault that are drawn; a layout of more takes too long and shows nothing."""

Verdict = Mapping[str, Any]
"""One row of the report's `diagnoses`: kind, name, nodes, fault, severity."""


@dataclass(frozen=True, slots=True)
class FleetFaults:
    """The nodes of a fleet in the report's order, and what was found of them.

    Args:
        switches: node -> the switch it is behind; "" where that is not known.
        nodes: node -> the verdict on it.
        links: verdicts on one link, each of two nodes.
        groups: name of a switch or group -> the verdict on it.
        silent: nodes that did not answer.
        inconclusive: nodes of which one is at fault, and it cannot be said which.
    """

    switches: Mapping[str, str]
    nodes: Mapping[str, Verdict]
    links: tuple[Verdict, ...]
    groups: Mapping[str, Verdict]
    silent: frozenset[str]
    inconclusive: frozenset[str]

    @property
    def named(self) -> frozenset[str]:
        """All nodes of which the report has something to say."""
        linked = (name for link in self.links for name in nodes_of(link))
        return frozenset((*self.nodes, *self.silent, *self.inconclusive, *linked))


@dataclass(frozen=True, slots=True)
class Selection:
    """Which nodes are drawn one by one, and which only counted.

    Args:
        nodes: the drawn ones, in the report's order.
        alike: switch -> how many healthy nodes behind it are one box.
        left_out: nodes with a fault that there is no room for.
    """

    nodes: tuple[str, ...]
    alike: Mapping[str, int]
    left_out: int


def read_faults(facts: Mapping[str, Any]) -> FleetFaults:
    """Sort the facts of a netcheck report by what they are about.

    Args:
        facts: `nodes`, `diagnoses`, `inconclusive` and `unknown` are read; each may be missing.
    """
    verdicts = _rows(facts, "diagnoses")
    by_kind: dict[object, list[Verdict]] = {"node": [], "link": [], "group": []}
    for verdict in verdicts:
        by_kind.setdefault(verdict.get("kind"), []).append(verdict)
    return FleetFaults(
        switches={
            str(row.get("node", "")): str(row.get("switch") or "") for row in _rows(facts, "nodes")
        },
        nodes={nodes_of(v)[0]: v for v in by_kind["node"] if nodes_of(v)},
        links=tuple(v for v in by_kind["link"] if len(nodes_of(v)) == 2),
        groups={str(v.get("name", "")): v for v in by_kind["group"]},
        silent=frozenset(str(name) for name in _list(facts.get("unknown"))),
        inconclusive=frozenset(n for row in _rows(facts, "inconclusive") for n in nodes_of(row)),
    )


def select(fleet: FleetFaults) -> Selection:
    """Choose what is drawn: every fault that there is room for, few of the nodes without one."""
    named = fleet.named
    healthy: dict[str, list[str]] = {}
    for name, switch in fleet.switches.items():
        if name not in named:
            healthy.setdefault(switch, []).append(name)
    single: set[str] = set()
    alike: dict[str, int] = {}
    for switch, names in healthy.items():
        if len(names) <= (MAX_ALIKE_BEHIND if switch else MAX_ALIKE):
            single.update(names)
        else:
            alike[switch] = len(names)
    faulty = sorted(named.intersection(fleet.switches))
    kept = set(faulty[:MAX_FAULTY])
    drawn = tuple(name for name in fleet.switches if name in single or name in kept)
    return Selection(drawn, alike, len(faulty) - len(kept))


def nodes_of(row: Mapping[str, Any]) -> list[str]:
    """The names in one row of the report."""
    return [str(name) for name in _list(row.get("nodes"))]


def _rows(facts: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    return [row for row in _list(facts.get(key)) if isinstance(row, Mapping)]


def _list(value: object) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else []
