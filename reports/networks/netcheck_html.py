"""A network check as one self-contained page: verdict, findings, heatmap, topology, nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from relkit.findings import Report, Status
from relkit.netcheck.model import Edge
from relkit.reports import dot
from relkit.reports.html import environment, page_time, style_and_policy
from relkit.reports.networks import heatmap

MAX_ROWS = 512

_COLUMNS = (
    ("node", "node", False),
    ("switch", "switch", False),
    ("out_gbps", "sends (Gbit/s)", True),
    ("in_gbps", "receives (Gbit/s)", True),
    ("latency_us", "round trip (µs)", True),
    ("failed_edges", "failed", True),
    ("address", "address", False),
    ("interface", "interface", False),
    ("mtu", "MTU", True),
    ("speed_mbps", "speed (Mbit/s)", True),
    ("duplex", "duplex", False),
    ("compute_gflops", "GFLOP/s", True),
    ("memory_gbps", "memory (GB/s)", True),
    ("detail", "remark", False),
)


def render(report: Report, edges: Sequence[Edge], *, graph_svg: str | None = None) -> str:
    """The page as text.

    Args:
        report: of netcheck; facts that are missing or odd leave their part of the page out.
        edges: what was measured, for the heatmap.
        graph_svg: topology_graph's DOT as Graphviz drew it (it escapes every name); None: none.
    """
    facts = report.facts
    verdict = facts.get("verdict")
    verdict = verdict if isinstance(verdict, Mapping) else {}
    rows = [row for row in _list(facts.get("nodes")) if isinstance(row, Mapping)]
    bad_nodes = [str(name) for name in _list(verdict.get("nodes"))]
    names = [str(row.get("node", "")) for row in rows]
    groups = {str(row.get("node", "")): str(row["switch"]) for row in rows if row.get("switch")}
    drawn = ""
    if edges and names:
        links = [pair for pair in _list(verdict.get("links")) if isinstance(pair, (list, tuple))]
        drawn = heatmap.render(names, edges, bad_nodes=bad_nodes, bad_links=links, groups=groups)
    columns, table = _table(rows, {*bad_nodes, *map(str, _list(facts.get("unknown")))})
    faults = [f for f in report.findings if f.status in (Status.FAIL, Status.UNKNOWN)]
    share = -(-len(names) // heatmap.MAX_CELLS)
    return (
        environment()
        .get_template("netcheck.html.j2")
        .render(
            report=report,
            headline=headline(report),
            lead=_lead(report),
            faults=faults,
            tiles=_tiles(facts, len(rows)),
            # heatmap and Graphviz escape every name.
            heatmap=Markup(drawn),  # noqa: S704
            grouped=share if share > 1 else 0,
            graph=Markup(dot.inline(graph_svg)),  # noqa: S704
            columns=columns,
            rows=table,
            left_out=max(0, len(rows) - MAX_ROWS),
            started=page_time(report.started),
            version=report.to_json()["meta"]["version"],
            **style_and_policy("report.css", "netcheck.css", rules=heatmap.css()),
        )
    )


def headline(report: Report) -> str:
    """The verdict in a few words."""
    verdict = report.facts.get("verdict")
    verdict = verdict if isinstance(verdict, Mapping) else {}
    nodes, links = _list(verdict.get("nodes")), _list(verdict.get("links"))
    groups = _list(verdict.get("groups"))
    parts = [
        _counted(nodes, "", "", str),
        _counted(links, "the link", "the links", lambda pair: " - ".join(map(str, _list(pair)))),
        _counted(groups, "the uplink of", "the uplinks of", str),
    ]
    named = [part for part in parts if part]
    if named:
        bad = len(nodes) + len(links) + len(groups)
        text = " and ".join(named) if len(named) < 3 else ", ".join(named)
        # Names keep their case; only our own words may begin a sentence.
        text = text if nodes else f"{text[0].upper()}{text[1:]}"
        return f"{text} {'is' if bad == 1 else 'are'} at fault"
    return {
        Status.FAIL: "A problem was found",
        Status.UNKNOWN: "relkit could not tell",
        Status.WARN: "No node and no link is at fault; something deserves a look",
    }.get(report.status, "No node and no link is at fault")


def _counted(items: Sequence[Any], singular: str, plural: str, text: Any) -> str:  # noqa: ANN401
    if not items:
        return ""
    names = ", ".join(text(item) for item in items[:3])
    more = f" and {len(items) - 3:,} more" if len(items) > 3 else ""
    return f"{singular if len(items) == 1 else plural} {names}{more}".strip()


def _lead(report: Report) -> str:
    faults = [f for f in report.findings if f.status in (Status.FAIL, Status.UNKNOWN)]
    if len(faults) == 1:
        return f"{faults[0].title}."
    failed = sum(f.status is Status.FAIL for f in faults)
    unknown = len(faults) - failed
    parts = [
        f"{failed} {'fault' if failed == 1 else 'faults'} found" if failed else "",
        f"{unknown} {'question' if unknown == 1 else 'questions'} left open" if unknown else "",
    ]
    return "; ".join(part for part in parts if part)


def _tiles(facts: Mapping[str, Any], nodes: int) -> list[tuple[str, str, str]]:
    tiles: list[tuple[str, str, str]] = []
    rows = [row for row in _list(facts.get("nodes")) if isinstance(row, Mapping)]
    answered = [row for row in rows if row.get("answered")]
    tiles.append(("nodes", f"{nodes:,}", "" if len(answered) == nodes else
                  f"{len(answered):,} answered"))  # fmt: skip
    usual = facts.get("median_gbps")
    if isinstance(usual, (int, float)):
        tiles.append(("median bandwidth", heatmap.gbps_text(usual), "Gbit/s"))
    coverage = facts.get("coverage")
    if isinstance(coverage, Mapping) and coverage.get("possible_links"):
        tested, possible = coverage.get("tested_links", 0), coverage["possible_links"]
        share = 100 * tested / possible
        text = "100 %" if tested >= possible else f"{min(share, 99.9):.3g} %"
        tiles.append(("pairs measured", text, f"{tested:,} of {possible:,}"))
    if facts.get("rounds") is not None:
        tiles.append(("rounds", f"{facts['rounds']}", f"{facts.get('mode', '')} mode"))
    if facts.get("probe"):
        tiles.append(("probe", str(facts["probe"]), ""))
    return tiles


def _table(
    rows: Sequence[Mapping[str, Any]], guilty: set[str]
) -> tuple[list[str], list[tuple[bool, list[tuple[str, bool]]]]]:
    """Headings and rows, the guilty first; columns that tell nothing are left out."""
    used = [
        column
        for column in _COLUMNS
        if any(row.get(column[0]) not in (None, "", 0) for row in rows)
    ]
    ordered = sorted(rows, key=lambda row: str(row.get("node")) not in guilty)
    table = [
        (
            str(row.get("node")) in guilty,
            [(_cell(row.get(key)), numeric) for key, _, numeric in used],
        )
        for row in ordered[:MAX_ROWS]
    ]
    return [title for _, title, _ in used], table


def _cell(value: object) -> str:
    if value is None:
        return ""
    return f"{value:,.4g}" if isinstance(value, float) else str(value)


def _list(value: object) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else []
