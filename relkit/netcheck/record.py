"""Edges and facts to and from plain JSON; what others wrote is checked field by field."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from relkit.netcheck.model import Edge, Failure, NodeFacts, Port, SizeStatistics

_TEXT_LIMIT = 1000
_MAX_SIZES = 64
_MAX_PORTS = 64
_MAX_ROUND = 1_000_000


def fitting_fields(kind: type, raw: object) -> dict[str, Any]:
    """The fields of a dataclass that a mapping has with the right type; numbers are finite."""
    if not isinstance(raw, Mapping):
        return {}
    fitting: dict[str, Any] = {}
    for item in fields(kind):
        value, wanted = raw.get(item.name), str(item.type)
        if wanted == "bool" and isinstance(value, bool):
            fitting[item.name] = value
        elif wanted == "str" and isinstance(value, str):
            fitting[item.name] = value[:_TEXT_LIMIT]
        elif wanted in ("int", "float") and _is_finite(value):
            assert isinstance(value, (int, float))
            fitting[item.name] = int(value) if wanted == "int" else float(value)
    return fitting


def _is_finite(value: object) -> bool:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return False
    # An int may be too large for a float, and no measurement is.
    return abs(value) < 1e18 and math.isfinite(value)


def positive(value: object) -> float:
    """The value if it is a positive finite number, else 0."""
    if not isinstance(value, (int, float)) or not _is_finite(value):
        return 0.0
    return max(0.0, float(value))


def read_edge(raw: object) -> Edge | None:
    """An edge, or None if it is not one between two different nodes."""
    known = fitting_fields(Edge, raw)
    source, target = known.get("source"), known.get("target")
    if not isinstance(raw, Mapping) or not source or not target or source == target:
        return None
    if not 0 <= known.setdefault("round", 0) <= _MAX_ROUND:
        return None
    for name in ("bandwidth_gbps", "both_ways_gbps", "latency_p50_us", "latency_p99_us"):
        known[name] = positive(known.get(name))
    known["by_size"] = _read_sizes(raw.get("by_size"))
    return Edge(**known, failure=read_failure(raw.get("failure")))


def _read_sizes(raw: object) -> tuple[SizeStatistics, ...]:
    if not isinstance(raw, list | tuple):
        return ()
    rows = [fitting_fields(SizeStatistics, row) for row in raw[:_MAX_SIZES]]
    return tuple(
        SizeStatistics(**{key: type(value)(positive(value)) for key, value in row.items()})
        for row in rows
        if row.get("size_bytes", 0) > 0
    )


def read_failure(raw: object) -> Failure:
    """By value or by name; anything else is a failure of the probe, never a success."""
    if not raw:
        return Failure.NONE
    for failure in Failure:
        if raw in (failure.value, failure.name, failure.name.lower()):
            return failure
    return Failure.PROBE_ERROR


def read_ports(raw: object) -> tuple[Port, ...]:
    """The ports of facts about a node, as plain JSON; what is none is left out."""
    plain = raw.get("ports") if isinstance(raw, Mapping) else None
    rows = plain[:_MAX_PORTS] if isinstance(plain, list | tuple) else ()
    known = [fitting_fields(Port, row) for row in rows]
    return tuple(
        Port(**row)
        for row in known
        if {"name", "kind", "speed_mbps"} <= row.keys() and row["speed_mbps"] > 0
    )


def read_facts(raw: object) -> NodeFacts | None:
    """Facts about a node, or None if there is no name."""
    known = {**fitting_fields(NodeFacts, raw), "ports": read_ports(raw)}
    return NodeFacts(**known) if known.get("name") else None


def plain_edge(edge: Edge) -> dict[str, Any]:
    """The fields that are set, numbers to five digits: a full check has many edges."""
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
    """The statistics of each message size, to five digits, without those not measured."""
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
