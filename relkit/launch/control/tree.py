"""Which launcher reports to which (pure): a tree of bounded fan-in, from the nodes' numbers alone.

A node's parent is the nearest of its ancestors that is not silent; where all are, the lowest of the
heirs. A parent has a lower number than its child, so that there is no circle, whoever is silent.
"""

from __future__ import annotations

from collections.abc import Collection

# Children of a node; and how many of the lowest nodes, the heirs, may lead.
FAN_IN = 32


def ancestors(node: int, fan_in: int = FAN_IN) -> tuple[int, ...]:
    """A node's parent where nobody is silent, that one's parent, and so on up to node 0."""
    above = []
    while node:
        node = (node - 1) // fan_in
        above.append(node)
    return tuple(above)


def children(node: int, nodes: int, fan_in: int = FAN_IN) -> range:
    """Those whose parent this node is where nobody is silent.

    Args:
        nodes: how many there are.
    """
    first = node * fan_in + 1
    return range(min(first, nodes), min(first + fan_in, nodes))


def heirs(nodes: int, fan_in: int = FAN_IN) -> range:
    """Those that may lead; the lowest of them that lives does."""
    return range(min(nodes, fan_in))


def candidates(node: int, nodes: int, fan_in: int = FAN_IN) -> tuple[int, ...]:
    """A node's parent is the first of these that is not silent; where all are, it leads."""
    above = ancestors(node, fan_in)
    return (*above, *(h for h in heirs(nodes, fan_in) if h < node and h not in above))


def parent(node: int, nodes: int, silent: Collection[int] = (), fan_in: int = FAN_IN) -> int | None:
    """Whom a node reports to; None where it leads.

    Args:
        silent: those that this node does not hear.
    """
    return next((c for c in candidates(node, nodes, fan_in) if c not in silent), None)
