"""The nodes, links and uplinks that an edge passes through, any of which may be at fault."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from relkit.netcheck.solve.observations import Ints, Observations

BOTH, OUT, IN = 0, 1, 2
NODE, GROUP, LINK = "node", "group", "link"


@dataclass(frozen=True, slots=True, order=True)
class Entity:
    """Something that can be at fault: a node, a group's uplink, or the link of two nodes.

    Args:
        kind: NODE, GROUP or LINK.
        first: number of the node or group; the lower node of a link.
        second: the higher node of a link, else -1.
    """

    kind: str
    first: int
    second: int = -1


@dataclass(frozen=True, slots=True)
class Components:
    """Which measurements pass through which component.

    A component is an entity in one of three ways: both directions alike, only what leaves it
    (for a link: from its lower node to its higher), or only what enters it.

    Args:
        edge, component: one row for each component that an edge passes through, ordered by
            component.
        start: first row of each component; one more at the end.
        nodes, groups: counts. links: number of node pairs (low * nodes + high), ascending.
    """

    edge: Ints
    component: Ints
    start: Ints
    nodes: int
    groups: int
    links: Ints

    def count(self) -> int:
        """How many components there are."""
        return 3 * (self.nodes + self.groups + len(self.links))

    def edges_of(self, component: int) -> Ints:
        """The measurements that pass through a component."""
        return self.edge[self.start[component] : self.start[component + 1]]

    def is_link(self, component: int) -> bool:
        """Whether it is the link of two nodes."""
        return component >= 3 * (self.nodes + self.groups)

    def leaves(self, component: int, seen: Observations) -> NDArray[np.bool_]:
        """Which measurements start in the node or group whose component this is."""
        of = self.entity(component)
        start = seen.source if of.kind == NODE else seen.group[seen.source]
        away: NDArray[np.bool_] = start == of.first
        return away

    def entity(self, component: int) -> Entity:
        """The entity that it belongs to."""
        if component < 3 * self.nodes:
            return Entity(NODE, component % self.nodes)
        component -= 3 * self.nodes
        if component < 3 * self.groups:
            return Entity(GROUP, component % self.groups)
        pair = int(self.links[(component - 3 * self.groups) % len(self.links)])
        return Entity(LINK, pair // self.nodes, pair % self.nodes)

    def way(self, component: int) -> int:
        """BOTH, OUT or IN."""
        for size in (self.nodes, self.groups):
            if component < 3 * size:
                return component // size
            component -= 3 * size
        return component // len(self.links)


def components_of(seen: Observations) -> Components:
    """List every component that a measurement passed through."""
    nodes, groups = len(seen.nodes), len(seen.group_names)
    all_edges = np.arange(len(seen.source), dtype=np.int64)
    named = seen.accused >= 0
    # A failure that names the node at fault says nothing about the other end or the link.
    plain = all_edges[~named]
    source, target = seen.source[plain], seen.target[plain]
    low, high = np.minimum(source, target), np.maximum(source, target)
    links, link = np.unique(low * nodes + high, return_inverse=True)
    rows = [
        (all_edges[named], seen.accused[named]),
        (plain, source + BOTH * nodes),
        (plain, target + BOTH * nodes),
        (plain, source + OUT * nodes),
        (plain, target + IN * nodes),
    ]
    base = 3 * nodes
    if groups:
        between = plain[seen.crosses[plain]]
        ours, theirs = seen.group[seen.source[between]], seen.group[seen.target[between]]
        rows += [
            (between, base + ours + BOTH * groups),
            (between, base + theirs + BOTH * groups),
            (between, base + ours + OUT * groups),
            (between, base + theirs + IN * groups),
        ]
    base += 3 * groups
    upward = np.where(source < target, OUT, IN)
    rows += [(plain, base + link), (plain, base + link + upward * len(links))]
    edge = np.concatenate([row[0] for row in rows])
    component = np.concatenate([row[1] for row in rows])
    order = np.argsort(component, kind="stable")
    total = 3 * (nodes + groups + len(links))
    start = np.searchsorted(component[order], np.arange(total + 1))
    return Components(
        edge=edge[order],
        component=component[order],
        start=start.astype(np.int64),
        nodes=nodes,
        groups=groups,
        links=links.astype(np.int64),
    )
