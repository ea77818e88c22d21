"""Edges and facts to and from plain JSON; what others wrote is believed only where it fits."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from relkit.netcheck.model import Edge, Failure, NodeFacts, SizeFigure

_TEXT_LIMIT = 1000
_MOST_SIZES = 64


def fitting_fields(kind: type, said: object) -> dict[str, Any]:
    """The fields of a dataclass that a mapping has with the right type; numbers are finite."""
    if not isinstance(said, Mapping):
        return {}
    found: dict[str, Any] = {}
    for item in fields(kind):
        value, wanted = said.get(item.name), str(item.type)
        if wanted == "bool" and isinstance(value, bool):
            found[item.name] = value
        elif wanted == "str" and isinstance(value, str):
            found[item.name] = value[:_TEXT_LIMIT]
        elif wanted in ("int", "float") and _is_finite(value):
            assert isinstance(value, (int, float))
            found[item.name] = int(value) if wanted == "int" else float(value)
    return found


def _is_finite(value: object) -> bool:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return False
    # An int may be too large for a float, and no measurement is.
    return abs(value) < 1e18 and math.isfinite(value)


def positive(value: object) -> float:
    """The number, where it is one and not negative; else 0."""
    if not isinstance(value, (int, float)) or not _is_finite(value):
        return 0.0
    return max(0.0, float(value))


def read_edge(said: object) -> Edge | None:
    """An edge, or None where it is not one between two different nodes."""
    known = fitting_fields(Edge, said)
    source, target = known.get("source"), known.get("target")
    if not isinstance(said, Mapping) or not source or not target or source == target:
        return None
    known.setdefault("round", 0)
    for name in ("bandwidth_gbps", "both_ways_gbps", "latency_p50_us", "latency_p99_us"):
        known[name] = positive(known.get(name))
    known["by_size"] = _read_sizes(said.get("by_size"))
    return Edge(**known, failure=read_failure(said.get("failure")))


def _read_sizes(said: object) -> tuple[SizeFigure, ...]:
    if not isinstance(said, list | tuple):
        return ()
    rows = [fitting_fields(SizeFigure, row) for row in said[:_MOST_SIZES]]
    return tuple(
        SizeFigure(**{key: type(value)(positive(value)) for key, value in row.items()})
        for row in rows
        if row.get("size_bytes", 0) > 0
    )


def read_failure(said: object) -> Failure:
    """By value or by name; what is neither is a failure of the probe, never a success."""
    if not said:
        return Failure.NONE
    for failure in Failure:
        if said in (failure.value, failure.name, failure.name.lower()):
            return failure
    return Failure.PROBE_ERROR


def read_facts(said: object) -> NodeFacts | None:
    """Facts of a node, or None where there is no name."""
    known = fitting_fields(NodeFacts, said)
    return NodeFacts(**known) if known.get("name") else None


def plain_edge(edge: Edge) -> dict[str, Any]:
    """The fields that say something, with figures to five digits: a full check has many edges."""
    plain = {
        key: float(f"{value:.5g}") if isinstance(value, float) else value
        for key, value in asdict(edge).items()
        if value or key == "round"
    }
    if edge.failure:
        plain["failure"] = edge.failure.value
    if edge.by_size:
        plain["by_size"] = plain_sizes(edge)
    return plain


def plain_sizes(edge: Edge) -> list[dict[str, Any]]:
    """The figures of each message size, to five digits, without those that were not measured."""
    return [
        {
            key: float(f"{value:.5g}") if isinstance(value, float) else value
            for key, value in asdict(row).items()
            if value
        }
        for row in edge.by_size
    ]


def plain_facts(facts: NodeFacts) -> dict[str, Any]:
    """All fields."""
    return asdict(facts)
