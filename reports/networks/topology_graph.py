"""The fleet as a Graphviz graph: switches, nodes, and every link that was found bad."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import graphviz

from relkit.reports.drawing.markup import middle_cut, shown
from relkit.reports.networks.fleet_faults import (
    FleetFaults,
    Selection,
    nodes_of,
    read_faults,
    select,
)

_NAME_CHARS = 40
_RED = "#b3261e"


def graph(facts: Mapping[str, Any]) -> str:
    """DOT text from the facts of a netcheck report.

    Args:
        facts: `nodes`, `diagnoses`, `inconclusive` and `unknown` are read; each may be missing.
    """
    fleet = read_faults(facts)
    selection = select(fleet)
    dot = _empty(with_switches=any(fleet.switches.values()))
    ids = {name: f"n{i}" for i, name in enumerate(fleet.switches)}
    hubs = _hubs(dot, list(fleet.switches.values()), fleet.groups, len(fleet.switches))
    _draw_nodes(dot, fleet, selection, ids, hubs)
    _draw_rest(dot, fleet, selection, hubs)
    _draw_links(dot, fleet, selection, ids)
    return str(dot.source)


def _empty(*, with_switches: bool) -> graphviz.Graph:
    return graphviz.Graph(
        "fleet",
        graph_attr={"layout": "dot" if with_switches else "neato",
                    "fontname": "sans-serif", "overlap": "false", "splines": "true",
                    "bgcolor": "transparent", "ranksep": "0.8", "sep": "+12"},
        node_attr={"shape": "box", "style": "filled,rounded", "fontname": "sans-serif",
                   "fontsize": "11", "fillcolor": "#eef3ef", "color": "#9aa7a0",
                   "class": "good", "margin": "0.12,0.06", "height": "0.3"},
        edge_attr={"color": "#c3c9d2", "class": "wire", "fontname": "sans-serif",
                   "fontsize": "10"},
    )  # fmt: skip


def _draw_nodes(
    dot: graphviz.Graph,
    fleet: FleetFaults,
    selection: Selection,
    ids: Mapping[str, str],
    hubs: Mapping[str, str],
) -> None:
    for name in selection.nodes:
        look, words = _look(name, fleet)
        dot.node(ids[name], graphviz.escape(_text(name) + words), **look)
        wire = {"class": "wire bad", "color": _RED, "penwidth": "2"} if name in fleet.nodes else {}
        dot.edge(hubs[fleet.switches[name]], ids[name], **wire)


def _draw_rest(
    dot: graphviz.Graph, fleet: FleetFaults, selection: Selection, hubs: Mapping[str, str]
) -> None:
    """The nodes that are only counted: healthy ones behind each switch, and faults without room."""
    named = fleet.named
    healthy = dict.fromkeys(switch for name, switch in fleet.switches.items() if name not in named)
    for i, switch in enumerate(healthy):
        if switch in selection.alike:
            text = f"{selection.alike[switch]:,} nodes\nwithout a fault"
            dot.node(f"rest{i}", text, **{"class": "good", "style": "filled,rounded,dashed"})
            dot.edge(hubs[switch], f"rest{i}")
    if selection.left_out:
        dot.node("more", f"{selection.left_out:,} more with a fault", **{"class": "bad"})
        dot.edge("core", "more")


def _draw_links(
    dot: graphviz.Graph, fleet: FleetFaults, selection: Selection, ids: Mapping[str, str]
) -> None:
    for link in fleet.links:
        if set(nodes_of(link)) <= set(selection.nodes):
            first, second = nodes_of(link)
            dot.edge(ids[first], ids[second], label=graphviz.escape(_fault(link)),
                     **{"class": "link bad", "color": _RED, "fontcolor": _RED,
                        "penwidth": "2.5", "constraint": "false",
                        "style": "dashed" if link.get("fault") == "dead" else "solid"})  # fmt: skip


def _hubs(
    dot: graphviz.Graph,
    switches: Sequence[str],
    slow: Mapping[str, Mapping[str, Any]],
    count: int,
) -> dict[str, str]:
    """Graph ids by switch; "" is the network as a whole, which everything hangs from."""
    dot.node("core", f"network of {count:,} nodes", shape="ellipse",
             **{"class": "hub", "fillcolor": "#ffffff"})  # fmt: skip
    hubs = {"": "core"}
    wanted = [*switches, *(_group_key(name, switches) for name in slow)]
    for i, name in enumerate(dict.fromkeys(filter(None, wanted))):
        hubs[name] = f"s{i}"
        bad = next((c for key, c in slow.items() if _group_key(key, switches) == name), None)
        words = f"\n{_fault(bad)}" if bad else ""
        look = (
            {"class": "hub bad", "fillcolor": "#fdecea", "color": _RED, "penwidth": "2"}
            if bad
            else {"class": "hub", "fillcolor": "#ffffff"}
        )
        dot.node(hubs[name], graphviz.escape(_text(name) + words), shape="box3d", **look)
        wire = {"class": "wire bad", "color": _RED, "penwidth": "3"} if bad else {}
        dot.edge("core", hubs[name], **wire)
    return hubs


def _group_key(name: str, switches: Sequence[str]) -> str:
    """The switch that a diagnosis's name means: "switch asw-2" is asw-2."""
    if name in switches:
        return name
    last = name.rpartition(" ")[2]
    return last if last in switches else name


def _look(name: str, fleet: FleetFaults) -> tuple[dict[str, str], str]:
    """How a node's box looks, and what stands below its name."""
    if name in fleet.nodes:
        look = {"class": "bad", "fillcolor": "#fdecea", "color": _RED, "penwidth": "2"}
        return look, f"\n{_fault(fleet.nodes[name])}"
    if name in fleet.silent:
        look = {"class": "unknown", "fillcolor": "#f3ebfd", "color": "#6b3fa0",
                "style": "filled,rounded,dashed"}  # fmt: skip
        return look, "\nno answer"
    if name in fleet.inconclusive:
        look = {"class": "unknown", "fillcolor": "#f3ebfd", "color": "#6b3fa0"}
        return look, "\ninconclusive"
    return {}, ""


def _fault(diagnosis: Mapping[str, Any] | None) -> str:
    fault = str((diagnosis or {}).get("fault", ""))
    severity = (diagnosis or {}).get("severity")
    if fault == "dead" or not isinstance(severity, (int, float)):
        return shown(fault)
    return f"{shown(fault)} (-{100 * severity:.0f} %)"


def _text(name: str) -> str:
    return middle_cut(shown(name), _NAME_CHARS)
