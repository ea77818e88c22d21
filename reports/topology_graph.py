"""The fleet as a Graphviz graph: switches, nodes, and every link that was found bad."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import graphviz

from relkit.reports.markup import middle_cut, shown

MAX_ALIKE, MAX_ALIKE_BEHIND = 12, 2
"""Nodes without a fault that are drawn one by one, in all and behind a switch; more are a box."""

MAX_TOLD = 200
"""Nodes with a fault that are drawn; a layout of more takes too long and shows nothing."""

_NAME_CHARS = 40


def graph(facts: Mapping[str, Any]) -> str:
    """DOT text from the facts of a netcheck report.

    Args:
        facts: `nodes`, `convictions`, `undecided` and `unknown` are read; each may be missing.
    """
    rows = [row for row in _list(facts.get("nodes")) if isinstance(row, Mapping)]
    names = [str(row.get("node", "")) for row in rows]
    convicted = [c for c in _list(facts.get("convictions")) if isinstance(c, Mapping)]
    undecided = [u for u in _list(facts.get("undecided")) if isinstance(u, Mapping)]
    unknown = {str(name) for name in _list(facts.get("unknown"))}
    switches = {str(row.get("node", "")): str(row.get("switch") or "") for row in rows}
    faults = {_nodes(c)[0]: c for c in convicted if c.get("kind") == "node" and _nodes(c)}
    slow_groups = {str(c.get("name", "")): c for c in convicted if c.get("kind") == "group"}
    links = [c for c in convicted if c.get("kind") == "link" and len(_nodes(c)) == 2]
    doubtful = {name for u in undecided for name in _nodes(u)}
    told = {*faults, *unknown, *doubtful, *(n for c in links for n in _nodes(c))}
    alike: dict[str, list[str]] = {}
    for name in names:
        if name not in told:
            alike.setdefault(switches[name], []).append(name)
    most = {switch: MAX_ALIKE_BEHIND if switch else MAX_ALIKE for switch in alike}
    single = {name for switch, few in alike.items() if len(few) <= most[switch] for name in few}
    shown_told = {name for name in names if name in told}
    if len(shown_told) > MAX_TOLD:
        shown_told = set(sorted(shown_told)[:MAX_TOLD])
    drawn = [name for name in names if name in single or name in shown_told]

    dot = graphviz.Graph(
        "fleet",
        graph_attr={"layout": "dot" if any(switches.values()) else "neato",
                    "fontname": "sans-serif", "overlap": "false", "splines": "true",
                    "bgcolor": "transparent", "ranksep": "0.8", "sep": "+12"},
        node_attr={"shape": "box", "style": "filled,rounded", "fontname": "sans-serif",
                   "fontsize": "11", "fillcolor": "#eef3ef", "color": "#9aa7a0",
                   "class": "good", "margin": "0.12,0.06", "height": "0.3"},
        edge_attr={"color": "#c3c9d2", "class": "wire", "fontname": "sans-serif",
                   "fontsize": "10"},
    )  # fmt: skip
    ids = {name: f"n{i}" for i, name in enumerate(names)}
    hubs = _hubs(dot, list(switches.values()), slow_groups, len(names))
    for name in drawn:
        look, words = _look(name, faults, unknown, doubtful)
        dot.node(ids[name], graphviz.escape(_text(name) + words), **look)
        hub = hubs[switches[name]]
        dot.edge(hub, ids[name], **({"class": "wire bad", "color": "#b3261e", "penwidth": "2"}
                                    if name in faults else {}))  # fmt: skip
    for i, (switch, many) in enumerate(alike.items()):
        if len(many) > most[switch]:
            text = f"{len(many):,} nodes\nwithout a fault"
            dot.node(f"rest{i}", text, **{"class": "good", "style": "filled,rounded,dashed"})
            dot.edge(hubs[switch], f"rest{i}")
    if len(shown_told) < len(told & set(names)):
        dot.node("more", f"{len(told & set(names)) - len(shown_told):,} more with a fault",
                 **{"class": "bad"})  # fmt: skip
        dot.edge("core", "more")
    for link in links:
        first, second = _nodes(link)
        if first in ids and second in ids and {first, second} <= set(drawn):
            dot.edge(ids[first], ids[second], label=graphviz.escape(_fault(link)),
                     **{"class": "link bad", "color": "#b3261e", "fontcolor": "#b3261e",
                        "penwidth": "2.5", "constraint": "false",
                        "style": "dashed" if link.get("fault") == "dead" else "solid"})  # fmt: skip
    return str(dot.source)


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
            {"class": "hub bad", "fillcolor": "#fdecea", "color": "#b3261e", "penwidth": "2"}
            if bad
            else {"class": "hub", "fillcolor": "#ffffff"}
        )
        dot.node(hubs[name], graphviz.escape(_text(name) + words), shape="box3d", **look)
        wire = {"class": "wire bad", "color": "#b3261e", "penwidth": "3"} if bad else {}
        dot.edge("core", hubs[name], **wire)
    return hubs


def _group_key(name: str, switches: Sequence[str]) -> str:
    """The switch that a conviction's name means: "switch asw-2" is asw-2."""
    if name in switches:
        return name
    last = name.rpartition(" ")[2]
    return last if last in switches else name


def _look(
    name: str,
    faults: Mapping[str, Mapping[str, Any]],
    unknown: set[str],
    doubtful: set[str],
) -> tuple[dict[str, str], str]:
    if name in faults:
        look = {"class": "bad", "fillcolor": "#fdecea", "color": "#b3261e", "penwidth": "2"}
        return look, f"\n{_fault(faults[name])}"
    if name in unknown:
        look = {"class": "unknown", "fillcolor": "#f3ebfd", "color": "#6b3fa0",
                "style": "filled,rounded,dashed"}  # fmt: skip
        return look, "\nno answer"
    if name in doubtful:
        look = {"class": "unknown", "fillcolor": "#f3ebfd", "color": "#6b3fa0"}
        return look, "\nundecided"
    return {}, ""


def _fault(conviction: Mapping[str, Any] | None) -> str:
    fault = str((conviction or {}).get("fault", ""))
    severity = (conviction or {}).get("severity")
    if fault == "dead" or not isinstance(severity, (int, float)):
        return shown(fault)
    return f"{shown(fault)} (-{100 * severity:.0f} %)"


def _text(name: str) -> str:
    return middle_cut(shown(name), _NAME_CHARS)


def _list(value: object) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else []


def _nodes(item: Mapping[str, Any]) -> list[str]:
    return [str(name) for name in _list(item.get("nodes"))]
