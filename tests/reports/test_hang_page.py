"""The page of a hang: verdict first, drawings that fit, small for any job, deaf to hostile text."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from relkit.findings import Report, Status
from relkit.hang.attribute import attribute
from relkit.hang.model import JobView
from relkit.hang.report import hang_report
from relkit.hang_picture.model import (
    HangPicture,
    RankTimeline,
    TimelineOp,
    WaitGraph,
    WaitNode,
)
from relkit.hang_picture.picture import hang_picture
from relkit.hang_picture.runbook import HangFiles
from relkit.reports.flames.flame_svg import script_block
from relkit.reports.hangs import (
    hang_page,
    hang_timeline,
    wait_graph_dot,
    wait_graph_layout,
    wait_graph_svg,
)
from relkit.stacks.merge import merge_dumps
from tests.unit.hang.hang_builders import trained, waiting_for_buckets
from tests.unit.hang_picture.hang_folders import blocked_job, pipeline_job

HOSTILE = "<script>alert(1)</script>\u202e\x00\"'&]]>`<b>`"


def page_parts(hung: JobView) -> tuple[Report, HangPicture]:
    verdict = attribute(hung)
    report = hang_report(hung, verdict, started=1_790_000_000.0, argv=("relkit", "launch", "t.py"))
    dumps = [view.dump for view in hung.ranks if view.dump is not None]
    classes = merge_dumps(dumps, hung.world_size).classes
    return report, hang_picture(hung, verdict, classes, files=HangFiles("/root/timeline"))


def page(hung: JobView, *, graphviz: bool = False) -> str:
    return hang_page.render(*page_parts(hung), {}, draw_with_graphviz=graphviz)


def body(text: str) -> str:
    plain = re.sub(r"<(style|title|nav)[ >].*?</\1>", "", text, flags=re.DOTALL)
    plain = re.sub(r"<[^>]+>", " ", plain)
    return " ".join(plain.split())


def test_the_verdict_comes_before_everything_else() -> None:
    text = body(page(blocked_job(4)))
    order = [
        "Rank 2 holds up the job",
        "waiting on a lock for 12.0 s.",
        "the line to blame examples/train.py:88 Loader.next_batch",
        "ranks 0-1,3 wait for it in all_reduce #12 of the default group",
        "What to do next: rank 2",
        "what it means The others wait for this rank in a collective.",
        "ssh n0 &#39;py-spy dump --nonblocking --pid 1002&#39;",
        "Who waits for whom",
        "The last seconds of every rank",
        "How far each process group has come",
        "Where the main threads stand",
        "Ranks rank host pid",
        "Evidence",
    ]
    places = [text.find(words) for words in order]
    assert -1 not in places, order[places.index(-1)]
    assert places == sorted(places)


def test_the_finding_links_to_its_section(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 'title="docs/findings/hang.md#rk-hang-008"' in page(blocked_job(4))
    monkeypatch.setenv("RELKIT_DOCS_URL", "https://docs.example.org/relkit")
    assert 'href="https://docs.example.org/relkit/findings/hang.html#rk-hang-008"' in page(
        blocked_job(4)
    )


def test_the_page_of_a_pipeline(gold: Callable[[str, str], None]) -> None:
    # The version of relkit is no matter of the page's look.
    gold("hang.html", re.sub(r"relkit \d[\w.+]*", "relkit VERSION", page(pipeline_job(16))))


def test_the_drawing_of_the_waits(gold: Callable[[str, str], None]) -> None:
    gold("hang_waits.svg", wait_graph_svg.render(page_parts(pipeline_job(16))[1].wait_graph))


def test_the_drawing_of_the_last_seconds(gold: Callable[[str, str], None]) -> None:
    picture = page_parts(pipeline_job(16))[1]
    gold("hang_lanes.svg", hang_timeline.render(picture.timeline, {3: "waits for a lock"}))


def node(ranks: str, layer: int, count: int = 1, *, culprit: bool = False) -> WaitNode:
    return WaitNode(ranks, count, layer, culprit, (f"does {ranks}",))


def test_boxes_do_not_overlap_and_layers_stand_below_each_other() -> None:
    nodes = tuple(node(f"{n}", layer=n // 6, culprit=n == 0) for n in range(16))
    edges = tuple((n, n - 6) for n in range(6, 16))
    boxes = wait_graph_layout.place(WaitGraph(nodes, edges)).boxes
    for a in range(16):
        for b in range(a):
            beside = abs(boxes[a].x - boxes[b].x) >= wait_graph_layout.NODE_WIDTH
            below = boxes[a].y >= boxes[b].y + boxes[b].height
            assert beside or below or boxes[b].y >= boxes[a].y + boxes[a].height
            if (a, b) in edges:
                assert below


def test_every_edge_of_any_kind_is_drawn() -> None:
    nodes = (node("0", 0), node("1", 0), node("2", 0), node("3", 1))
    graph = WaitGraph(nodes, ((0, 1), (1, 0), (0, 2), (3, 0), (1, 3)))
    drawn = ElementTree.fromstring(wait_graph_svg.render(graph))  # noqa: S314 (our own output)
    heads = [p for p in drawn.iter("path") if p.get("class") == "head"]
    assert len(heads) == len(graph.edges)
    width, height = float(drawn.get("width", 0)), float(drawn.get("height", 0))
    for rect in drawn.iter("rect"):
        assert float(rect.get("x", 0)) + float(rect.get("width", 0)) <= width
        assert float(rect.get("y", 0)) + float(rect.get("height", 0)) <= height


def test_no_arrow_runs_behind_a_box() -> None:
    nodes = tuple(node(f"{n}", layer=n, culprit=n == 0) for n in range(6))
    edges = ((1, 0), (2, 1), (3, 2), (4, 3), (5, 4), (5, 0), (4, 1), (5, 2))
    placed = wait_graph_layout.place(WaitGraph(nodes, edges))
    assert {edge: len(route) for edge, route in placed.routes.items() if route} == {
        (5, 0): 4, (4, 1): 2, (5, 2): 2,
    }  # fmt: skip
    for route in placed.routes.values():
        for x, low, high in route:
            assert low > high
            assert 0 < x < placed.width
            for box in placed.boxes:
                beside = x < box.x or x > box.x + wait_graph_layout.NODE_WIDTH
                assert beside or high >= box.y + box.height or low <= box.y


def test_who_waits_stands_below_all_that_it_waits_for_unless_in_a_ring() -> None:
    nodes = (node("0", 0, culprit=True), node("1", 1), node("2", 2), node("3", 1), node("4", 0))
    edges = ((1, 0), (2, 1), (3, 0), (3, 1), (3, 2))
    assert wait_graph_layout.layers_of(WaitGraph(nodes, edges)) == [0, 1, 2, 3, 0]
    # A ring, also one through the rank at fault, which stays on top.
    assert wait_graph_layout.layers_of(WaitGraph(nodes, (*edges, (0, 3)))) == [0, 1, 2, 3, 0]
    assert wait_graph_layout.layers_of(WaitGraph(nodes, ((1, 2), (2, 1)))) == [0, 0, 1, 0, 0]


def test_drawings_of_nothing() -> None:
    assert wait_graph_svg.render(WaitGraph()) == ""
    assert hang_timeline.render((), {}) == ""
    assert hang_timeline.render((RankTimeline(0, False, ()),), {}) == ""
    text = hang_page.render(Report("hang", ()), HangPicture(), {}, draw_with_graphviz=False)
    assert "The job hangs" in text


def test_hostile_text_is_only_text() -> None:
    graph = WaitGraph(
        (WaitNode(HOSTILE, 2, 0, True, (HOSTILE,)), WaitNode("1", 1, 1, False, (HOSTILE,))),
        ((1, 0),),
    )
    ElementTree.fromstring(wait_graph_svg.render(graph))  # noqa: S314
    assert "<script" not in wait_graph_svg.render(graph)
    assert "\u202e" not in wait_graph_svg.render(graph)
    assert "\u202e" not in wait_graph_dot.graph_dot(graph)
    ops = (TimelineOp(HOSTILE, "collective", 9.0, None, False),)
    lanes = hang_timeline.render((RankTimeline(0, True, ops),), {0: HOSTILE})
    ElementTree.fromstring(lanes)  # noqa: S314
    hung = blocked_job(4)
    views = tuple(replace(v, host=HOSTILE, error=HOSTILE) for v in hung.ranks)
    hung = replace(hung, ranks=views, job_id=HOSTILE, trigger=HOSTILE)
    text = page(hung)
    assert "<script>alert" not in text
    assert "\u202e" not in text
    assert "\x00" not in text


def test_graphviz_draws_where_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relkit.reports.dot.picture", lambda *_, **__: "<?xml?><svg><g/></svg>")
    assert '<div class="graph"><svg><g/></svg></div>' in page(blocked_job(4), graphviz=True)
    monkeypatch.setattr("relkit.reports.dot.picture", lambda *_, **__: None)
    assert '<svg class="rk-waits"' in page(blocked_job(4), graphviz=True)


def test_the_window_shows_the_hang_on_a_scale_of_its_own() -> None:
    def lane(rank: int, *ops: tuple[float, float | None]) -> RankTimeline:
        made = (TimelineOp("x", "collective", begin, end, False) for begin, end in ops)
        return RankTimeline(rank, False, tuple(made))

    lanes = [lane(0, (305.0, 304.9), (301.0, 300.0), (299.0, None)), lane(1, (305.0, 304.0))]
    window = hang_timeline.window_of(lanes)
    assert window is not None
    assert (window.hang_s, window.before_s) == (300.0, 5.0)
    assert window.is_broken
    places = [window.x(age) for age in (305.0, 302.0, 300.0, 299.0, 1.0, 0.0)]
    assert places == sorted(places)
    moving = hang_timeline.window_of([lane(0, (5.0, 4.0), (0.2, 0.1))])
    assert moving is not None
    assert not moving.is_broken


@pytest.mark.long
def test_a_large_job_makes_a_small_page_in_seconds() -> None:
    hung = pipeline_job(1024)
    report, picture = page_parts(hung)
    flames = {"mixed": "x" * 2_000_000, "py": "y" * 2_000_000, "cpp": "z" * 900_000}
    began = time.monotonic()
    text = hang_page.render(report, picture, flames, draw_with_graphviz=False)
    drawn_s = time.monotonic() - began
    assert len(text.encode()) < 5_000_000
    assert "1 of the pictures of stacks would make this page too large" in text
    assert text.count("rank 3<") >= 1
    # Seconds on a machine that others keep busy: what this guards against takes minutes.
    assert drawn_s < 60


@pytest.mark.parametrize(
    ("peer_called", "missing", "words"),
    [
        (5, True, "has called 5 sends: this one is missing"),
        (6, True, "has called it; its device is still in something before it"),
        (6, False, "has called it (6 sends)"),
    ],
)
def test_a_transfer_says_what_the_peer_has_done(
    peer_called: int, missing: bool, words: str
) -> None:
    report, picture = page_parts(pipeline_job(16))
    each = replace(picture.transfers[0], number=5, peer_called=peer_called, missing=missing)
    picture = replace(picture, transfers=(each,))
    text = hang_page.render(report, picture, {}, draw_with_graphviz=False)
    assert f"<td>{words}</td>" in text


def test_all_ranks_at_fault_are_counted() -> None:
    hung = pipeline_job(128)
    views = tuple(replace(v, process_state="T") if 20 <= v.rank < 120 else v for v in hung.ranks)
    report, picture = page_parts(replace(hung, ranks=views))
    # Rank 3, of another kind of fault, is the 101st.
    assert len(report.facts["culprits"]) == 101
    assert len(picture.blamed) < 101
    text = body(hang_page.render(report, picture, {}, draw_with_graphviz=False))
    assert "Ranks 20, 21, 22, 23, 24, 25 and 95 more hold up the job" in text
    assert "What to do next: ranks 20, 21, 22, 23, 24, 25 and 94 more" in text


def test_what_there_is_no_room_for_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    report, picture = page_parts(pipeline_job(16))
    for name in ("VICTIMS", "FINDINGS", "EVIDENCE", "GROUP_ROWS", "TRANSFERS", "CLASSES"):
        monkeypatch.setattr(hang_page, f"MAX_{name}", 1)
    group = replace(picture.groups[0], left_out=70)
    (finding,) = report.findings
    report = replace(report, findings=(finding, *(replace(finding) for _ in range(2))))
    picture = replace(picture, groups=(group, *picture.groups[1:]))
    text = hang_page.render(report, picture, {}, draw_with_graphviz=False)
    victims, evidence = len(report.facts["victims"]) - 1, 3 * len(finding.evidence) - 1
    for words in (
        f"and {victims} more, in the output of relkit report --json",
        f"Rows not shown: {len(group.members) - 1 + 70};",
        "Sends and receives not shown: 3.",
        f"Classes not shown: {len(picture.stack_classes) - 1}.",
        "Findings not shown: 1;",
        f"Facts not shown: {evidence};",
    ):
        assert words in body(text)


def test_flame_pictures_are_in_the_page_once_each() -> None:
    report, picture = page_parts(blocked_job(4))
    svg = f'<svg class="rk-flame">{script_block()}</svg>'
    text = hang_page.render(report, picture, {"py": svg, "mixed": svg}, draw_with_graphviz=False)
    assert text.count('<div class="picture"') == 2
    assert text.count("<script>") == 1


def test_nobody_at_fault() -> None:
    hung = blocked_job(4)
    # Rank 2 waits as the others do: all have come.
    hook = trained(2, 4, 6, waiting_for_buckets())
    same = replace(hung.ranks[2], hook=hook, dump=hung.ranks[3].dump)
    report, picture = page_parts(replace(hung, ranks=(*hung.ranks[:2], same, hung.ranks[3])))
    assert report.status is Status.UNKNOWN
    text = body(hang_page.render(report, picture, {}, draw_with_graphviz=False))
    assert "The job hangs; no rank stands out" in text
    assert "relkit netcheck" in text
    assert "the line to blame" not in text
