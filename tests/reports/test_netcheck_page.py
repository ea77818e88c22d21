"""The page of a network check, its heatmap, its graph: faults stand out, bad names do not."""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from xml.etree import ElementTree

import pytest

from relkit.findings import Evidence, Finding, Report, Status
from relkit.netcheck.model import Edge, Failure
from relkit.reports import dot
from relkit.reports.drawing.palette import contrast
from relkit.reports.networks import heatmap, netcheck_html, topology_graph
from tests.patience import PATIENCE

HOSTILE = "<script>alert(1)</script>\u202e\x00\"'&]]>`<b>`"


def names(count: int) -> list[str]:
    return [f"node{i:03}" for i in range(1, count + 1)]


def all_pairs(
    nodes: Sequence[str],
    slow: Mapping[tuple[str, str], float] | None = None,
    dead: Sequence[tuple[str, str]] = (),
) -> list[Edge]:
    noise = random.Random(1)  # noqa: S311  (a picture, not a secret)
    found = []
    for one in nodes:
        for other in nodes:
            if one == other:
                continue
            if (one, other) in dead:
                found.append(Edge(one, other, 0, failure=Failure.NO_ANSWER))
                continue
            share = (slow or {}).get((one, other), 1.0)
            figure = 90.0 * share * (1 + noise.uniform(-0.01, 0.01))
            found.append(Edge(one, other, 0, bandwidth_gbps=figure, latency_p50_us=31.0))
    return found


def draw(nodes: Sequence[str], edges: Sequence[Edge], **how: Any) -> ElementTree.Element:  # noqa: ANN401
    # Our own output.
    return ElementTree.fromstring(heatmap.render(nodes, edges, **how))  # noqa: S314


def cells(svg: ElementTree.Element, kind: str) -> list[str]:
    """Titles of the squares of one class."""
    space = "{http://www.w3.org/2000/svg}"
    return [
        group.findtext(f"{space}title") or ""
        for group in svg.iter(f"{space}g")
        if group.get("class") == f"cell {kind}"
    ]


def test_a_slow_way_and_a_dead_link_have_their_own_squares() -> None:
    nodes = names(6)
    slow = {(nodes[0], nodes[1]): 0.3}
    dead = [(nodes[2], nodes[3]), (nodes[3], nodes[2])]
    svg = draw(nodes, all_pairs(nodes, slow, dead))
    assert len(cells(svg, "dead")) == 2
    assert "node003 → node004: no answer (dropped or dead)" in cells(svg, "dead")[0]
    (title,) = cells(svg, "l5")
    assert re.match(r"node001 → node002: 2\d\.\d Gbit/s, \d\d % of usual, round trip 31", title)
    assert len(cells(svg, "l0")) == 6 * 5 - 3


def test_the_convicted_are_marked_in_the_margin() -> None:
    nodes = names(8)
    svg = heatmap.render(
        nodes, all_pairs(nodes), bad_nodes=["node003"], bad_links=[["node001", "node007"]]
    )
    assert svg.count('class="guilty-band"') == 2
    assert svg.count('class="frame"') == 2
    assert len(re.findall(r'class="guilty"[^>]*>node00[137]<', svg)) == 6


def test_a_large_fleet_shares_squares_and_the_worst_shows() -> None:
    nodes = names(1000)
    edges = [
        Edge(nodes[i], nodes[(i + 1) % 1000], 0, bandwidth_gbps=10.0 if i == 500 else 90.0)
        for i in range(1000)
    ]
    svg = draw(nodes, edges, bad_nodes=["node501"])
    (title,) = cells(svg, "l6")
    assert title.startswith("worst of ")
    assert "node501 → node502: 10.0 Gbit/s" in title
    assert len(heatmap.render(nodes, edges)) < 400_000


@pytest.mark.parametrize("count", [0, 1, 2])
def test_small_fleets_and_no_edges(count: int) -> None:
    draw(names(count), all_pairs(names(count)))
    draw(names(count), [])


def test_members_of_a_switch_stand_together() -> None:
    nodes = names(4)
    groups = {name: f"asw-{i % 2}" for i, name in enumerate(nodes)}
    text = heatmap.render(nodes, all_pairs(nodes), groups=groups)
    assert [text.index(f">{name}<") for name in ("node001", "node003", "node002")] == sorted(
        text.index(f">{name}<") for name in ("node001", "node003", "node002")
    )
    assert text.count('class="band"') == 2


@pytest.mark.parametrize("dark", [False, True])
def test_figures_can_be_read_on_every_colour(dark: bool) -> None:
    rules = heatmap._rules(dark=dark)
    for i in range(7):
        (paper,) = re.findall(rf"\.l{i} rect.*?fill: (#\w+)", rules)
        (ink,) = re.findall(rf"\.l{i} text {{ fill: (#\w+)", rules)
        assert contrast(paper, ink) >= 4.5, (i, paper, ink)


def facts(**more: Any) -> dict[str, Any]:  # noqa: ANN401
    nodes = names(6)
    whole: dict[str, Any] = {
        "verdict": {"nodes": ["node003"], "links": [["node001", "node005"]], "groups": []},
        "diagnoses": [
            {"kind": "node", "nodes": ["node003"], "name": "node003", "fault": "slow",
             "severity": 0.6},
            {"kind": "link", "nodes": ["node001", "node005"], "name": "l", "fault": "dead",
             "severity": 1.0},
        ],
        "inconclusive": [],
        "unknown": ["node006"],
        "coverage": {"tested_links": 10, "possible_links": 15, "share": 0.667},
        "rounds": 5, "edges": 20, "mode": "full", "probe": "tcp", "median_gbps": 90.04,
        "nodes": [
            {"node": name, "answered": name != "node006", "out_gbps": 89.9, "in_gbps": 90.2,
             "latency_us": 31.0, "failed_edges": 0, "address": f"10.0.0.{i}", "interface": "ib0",
             "mtu": 9000, "speed_mbps": 100000, "duplex": "full", "switch": "", "detail": ""}
            for i, name in enumerate(nodes, 1)
        ],
    }  # fmt: skip
    return {**whole, **more}


FINDING = Finding(
    "RK-NET-002",
    Status.FAIL,
    "node003 is slow: 60 % of the expected bandwidth is missing",
    nodes="node003",
    reasons=("slow with 5 different partners",),
    evidence=(Evidence("sends", 36.1, "Gbit/s", 81.0, "median over its edges"),),
    advice="Leave it out (-x), and look at `ethtool -S`.",
)


def page(*findings: Finding, **more: Any) -> str:  # noqa: ANN401
    slow = {(a, b): 0.4 for a in names(6) for b in names(6) if "node003" in (a, b)}
    report = Report("netcheck", findings or (FINDING,), facts(**more), 1_790_000_000.0, 3.0,
                    ("relkit", "netcheck"))  # fmt: skip
    return netcheck_html.render(report, all_pairs(names(6), slow), graph_svg=None)


def test_the_page_is_the_one_that_was_looked_at(gold: Callable[[str, str], None]) -> None:
    gold("netcheck.html", page())


def test_the_graph_is_the_one_that_was_looked_at(gold: Callable[[str, str], None]) -> None:
    gold("netcheck.dot", topology_graph.graph(facts()))


def test_the_verdict_is_the_headline() -> None:
    assert "<h1>node003 and the link node001 - node005 are at fault</h1>" in page()
    nobody: dict[str, list[str]] = {"nodes": [], "links": [], "groups": []}
    assert "<h1>The uplink of asw-2 is at fault</h1>" in page(
        verdict={**nobody, "groups": ["asw-2"]}
    )
    many = page(verdict={**nobody, "nodes": names(30)})
    assert "node001, node002, node003 and 27 more are at fault" in many
    good = Finding("RK-NET-015", Status.OK, "all is well")
    assert "<h1>No node and no link is at fault</h1>" in page(good, verdict=nobody)
    unknown = Finding("RK-NET-006", Status.UNKNOWN, "no answer")
    assert "<h1>relkit could not tell</h1>" in page(unknown, verdict=nobody)


@pytest.mark.parametrize(
    "odd",
    [
        {"verdict": None, "nodes": None, "coverage": None, "median_gbps": None, "unknown": None},
        {"verdict": {"nodes": "x", "links": [1, []]}, "nodes": [{}, 5], "coverage": {}},
        {"diagnoses": [5, {}, {"kind": "node"}, {"kind": "link", "nodes": ["a"]}]},
        {"inconclusive": [{}, {"nodes": 5}], "unknown": 7},
    ],
)
def test_missing_and_odd_facts_do_not_stop_page_or_graph(odd: dict[str, Any]) -> None:
    assert "<h1>" in page(**odd)
    assert "graph" in topology_graph.graph(facts(**odd))


def test_hostile_names_are_escaped_everywhere() -> None:
    edges = [Edge(HOSTILE, "b", 0, bandwidth_gbps=1.0), Edge("b", HOSTILE, 0, detail=HOSTILE)]
    rows = [{"node": HOSTILE, "answered": True, "detail": HOSTILE, "switch": HOSTILE},
            {"node": "b", "answered": True, "switch": HOSTILE}]  # fmt: skip
    fault = {"kind": "link", "nodes": [HOSTILE, "b"], "name": HOSTILE, "fault": HOSTILE}
    made = facts(nodes=rows, diagnoses=[fault], verdict={"nodes": [HOSTILE], "links": [
        [HOSTILE, "b"]], "groups": [HOSTILE]})  # fmt: skip
    bad = Finding(HOSTILE, Status.FAIL, HOSTILE, reasons=(HOSTILE,), advice=HOSTILE)
    graph = topology_graph.graph(made)
    svg = dot.picture(graph, timeout_s=10.0 * PATIENCE)
    assert (svg is not None) is (shutil.which("dot") is not None)
    text = netcheck_html.render(Report("netcheck", (bad,), made, argv=(HOSTILE,)), edges,
                                graph_svg=svg)  # fmt: skip
    assert "<script" not in text
    assert "<b>alert" not in text
    assert "\u202e" not in text
    assert "\x00" not in text + graph
    assert ("<svg" in text) is (svg is not None)


def test_nothing_is_fetched_from_outside() -> None:
    assert not re.findall(r"(?:src|href)\s*=|@import|url\((?!#)|<link|<iframe|<script", page())


def test_a_large_fleet_is_a_small_graph() -> None:
    rows = [{"node": name, "answered": True, "switch": f"asw-{i // 32}"}
            for i, name in enumerate(names(1024))]  # fmt: skip
    fault = {"kind": "group", "nodes": names(32), "name": "switch asw-0", "fault": "slow uplink",
             "severity": 0.4}  # fmt: skip
    text = topology_graph.graph(facts(nodes=rows))
    assert text.count("\n") < 200
    assert "31 nodes" in text or "32 nodes" in text
    uplink = topology_graph.graph(facts(nodes=rows, diagnoses=[fault]))
    assert re.search(r'asw-0\s+slow uplink \(-40 %\)"', uplink)


@pytest.mark.dot
def test_the_real_layout_program_draws_it() -> None:
    rows = [{**row, "switch": f"asw-{i % 3}"} for i, row in enumerate(facts()["nodes"])]
    for made in (facts(), facts(nodes=rows)):
        svg = dot.picture(topology_graph.graph(made))
        assert svg is not None
        assert "slow (-60 %)" in svg.replace("&#45;", "-")
