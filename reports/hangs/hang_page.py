"""A hang as one self-contained page: verdict, what relkit did, what to do next, and the proof."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from relkit.findings import Finding, Report, Status
from relkit.hang.advice import ENTRIES
from relkit.hang_picture.actions import Action
from relkit.hang_picture.folder import HangEvidence
from relkit.hang_picture.model import Blamed, GroupProgress, HangPicture, TransferFact, WaitGraph
from relkit.reports import dot
from relkit.reports.drawing.markup import middle_cut
from relkit.reports.finding_texts import meaning_of
from relkit.reports.hangs import hang_timeline, wait_graph_dot, wait_graph_svg
from relkit.reports.html import (
    environment,
    flame_tabs,
    headline,
    page_time,
    style_and_policy,
)

MAX_RANK_ROWS = 256
MAX_GROUPS = 12
MAX_IDLE_GROUPS = 3
MAX_GROUP_ROWS = 16
MAX_TRANSFERS = 64
MAX_CLASSES = 12
MAX_CARDS = 3
MAX_VICTIMS = 12
MAX_FINDINGS = 24
MAX_EVIDENCE = 200
# Flame pictures take most of a page; those that tell least go first where there is no room.
MAX_FLAME_BYTES = 3_200_000
GRAPH_TIMEOUT_S = 5.0
_RANKS_CHARS = 60
# Of two pieces of advice that begin alike one is the other, with a number filled in.
_SAME = 60

_RANK_COLUMNS = (
    ("rank", "rank"),
    ("host", "host"),
    ("pid", "pid"),
    ("state", "state"),
    ("activity", "does"),
    ("in_flight", "in flight"),
    ("in_flight_s", "for (s)"),
    ("last_seq", "newest #"),
    ("cpu_share", "CPU share"),
    ("exit_code", "exit code"),
    ("note", "note"),
)


@dataclass(frozen=True, slots=True)
class _Card:
    """What to do about one kind of fault.

    Args:
        who: the ranks; blamed: the first of them.
        meaning: what the finding means, a paragraph each.
        advice: of the finding, where it knows more than its kind; "" where it does not.
        reasons: why relkit believes it.
    """

    who: str
    blamed: Blamed
    meaning: tuple[str, ...]
    advice: str
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Done:
    """One row of what relkit did.

    Args:
        time: of day, UTC; after: since the hang was certain; text: what it was.
    """

    time: str
    after: str
    text: str


@dataclass(frozen=True, slots=True)
class _Also:
    """A finding below the first, with what it means.

    Args:
        finding: itself; meaning: a paragraph each, nothing where a card above has it.
        advice: what to do next; "" where a card above says it.
    """

    finding: Finding
    meaning: tuple[str, ...]
    advice: str

    @classmethod
    def of(cls, finding: Finding, cards: Sequence[_Card]) -> _Also:
        """Explain what no card explains."""
        if any(card.blamed.finding == finding.id for card in cards):
            return cls(finding, (), "")
        return cls(finding, meaning_of(finding.id), finding.advice)


def render(
    report: Report,
    picture: HangPicture,
    svgs: Mapping[str, str],
    *,
    draw_with_graphviz: bool = True,
) -> str:
    """The page as text, below 5 MB.

    Args:
        report: the verdict, of the command "hang"; picture: all else that is shown.
        svgs: flame pictures by view, from flame_svg.render.
        draw_with_graphviz: `dot` draws who waits for whom, where it is installed.
    """
    facts = report.facts
    culprits = [rank for rank in facts.get("culprits", []) if isinstance(rank, int)]
    kept = _within_budget(svgs)
    faults = [f for f in report.findings if f.status in (Status.FAIL, Status.UNKNOWN)]
    lead = faults[0] if faults else None
    title = headline(report, culprits)
    closer = _examples(picture)
    groups = _telling(picture.groups)
    blamed = next((each for each in picture.blamed if each.rank >= 0 and culprits), None)
    victims = _victims(facts.get("victims"))
    # What to do where nobody stands out is no help where somebody does.
    cards = _cards(picture, report) if blamed or not culprits else []
    rest = [f for f in report.findings if f is not lead]
    evidence = [(finding, item) for finding in report.findings for item in finding.evidence]
    return (
        environment()
        .get_template("hang.html.j2")
        .render(
            report=report,
            headline=title,
            lead=_sentence(lead),
            finding=lead,
            blamed=blamed,
            victims=victims[:MAX_VICTIMS],
            victims_left_out=_beyond(victims, MAX_VICTIMS),
            tiles=_tiles(report, picture, blamed),
            cards=cards,
            actions=_actions(picture.actions, report.started),
            more_cards=_beyond(_kinds(picture), MAX_CARDS),
            rest=[_Also.of(f, cards) for f in rest[:MAX_FINDINGS]],
            rest_left_out=_beyond(rest, MAX_FINDINGS),
            # These escape every name.
            graph=Markup(_graph(picture.wait_graph, draw_with_graphviz)),  # noqa: S704
            is_folded=picture.wait_graph.is_folded,
            lanes=Markup(_lanes(picture, closer)),  # noqa: S704
            closer=closer and len(picture.timeline) > hang_timeline.MAX_SPOKEN,
            groups=[
                (g, [(_short(m.ranks), m) for m in g.members[:MAX_GROUP_ROWS]])
                for g in groups[:MAX_GROUPS]
            ],
            groups_left_out=len(picture.groups)
            + picture.left_out.groups
            - min(len(groups), MAX_GROUPS),
            transfers=[(_order(each), each) for each in picture.transfers[:MAX_TRANSFERS]],
            transfers_left_out=_beyond(picture.transfers, MAX_TRANSFERS)
            + picture.left_out.transfers,
            classes=[(_short(c.ranks), c) for c in picture.stack_classes[:MAX_CLASSES]],
            classes_left_out=_beyond(picture.stack_classes, MAX_CLASSES)
            + picture.left_out.stack_classes,
            rank_columns=[name for _, name in _columns(facts)],
            rank_rows=_rank_rows(facts, culprits),
            ranks_left_out=_beyond(_rows(facts), MAX_RANK_ROWS),
            evidence=evidence[:MAX_EVIDENCE],
            evidence_left_out=_beyond(evidence, MAX_EVIDENCE),
            tabs=flame_tabs(kept),
            flames_left_out=len(svgs) - len(kept),
            picture=picture,
            started=page_time(report.started) if report.started else "",
            version=report.to_json()["meta"]["version"],
            **style_and_policy("report.css", "hang.css", has_flames=bool(kept)),
        )
    )


def graph_of(picture: HangPicture, draw_with_graphviz: bool) -> str:
    """Who waits for whom, drawn; "" where nobody does."""
    return _graph(picture.wait_graph, draw_with_graphviz)


def lanes_of(picture: HangPicture) -> str:
    """The last seconds of every rank, drawn; "" where none is known."""
    return _lanes(picture, _examples(picture))


def actions_of(evidence: HangEvidence) -> list[_Done]:
    """What relkit did, a row each."""
    return _actions(evidence.picture.actions, evidence.report.started)


def _graph(graph: WaitGraph, draw_with_graphviz: bool) -> str:
    """By Graphviz where it is there and is quick, else our own drawing."""
    if draw_with_graphviz and graph.edges:
        drawn = dot.picture(wait_graph_dot.graph_dot(graph), timeout_s=GRAPH_TIMEOUT_S)
        if drawn:
            return f'<div class="graph">{dot.inline(drawn)}</div>'
    return wait_graph_svg.render(graph)


def _lanes(picture: HangPicture, closer: Sequence[int]) -> str:
    doing = {blamed.rank: blamed.doing for blamed in picture.blamed}
    return hang_timeline.render(picture.timeline, doing, closer)


def _examples(picture: HangPicture) -> list[int]:
    """Those at fault, and the first rank of each box of the graph; by rank."""
    guilty = [lane.rank for lane in picture.timeline if lane.culprit]
    firsts = [
        int(first)
        for node in picture.wait_graph.nodes
        if (first := node.ranks.partition(",")[0].partition("-")[0]).isdecimal()
    ]
    room = hang_timeline.MAX_CLOSER
    return sorted([*dict.fromkeys([*guilty[: room - 2], *firsts])][:room])


def _sentence(finding: Finding | None) -> str:
    """What is wrong, without those who wait: the page shows them apart."""
    if finding is None:
        return ""
    title = finding.title.partition("; ")[0]
    return f"{title[:1].upper()}{title[1:]}."


def _within_budget(svgs: Mapping[str, str]) -> dict[str, str]:
    kept: dict[str, str] = {}
    room = MAX_FLAME_BYTES
    for name, svg in svgs.items():
        if len(svg) <= room:
            kept[name] = svg
            room -= len(svg)
    return kept


def _kinds(picture: HangPicture) -> dict[str, list[Blamed]]:
    kinds: dict[str, list[Blamed]] = {}
    for blamed in picture.blamed:
        kinds.setdefault(blamed.category, []).append(blamed)
    return kinds


def _cards(picture: HangPicture, report: Report) -> list[_Card]:
    """One a category, in the order of the verdict."""
    findings = {finding.id: finding for finding in reversed(report.findings)}
    # Of all ranks at fault: the picture has the first ones only.
    category_of: dict[int, str] = {}
    for detail in report.facts.get("culprit_details", ()):
        category_of.setdefault(detail["rank"], detail["category"])
    cards = []
    for category, alike in list(_kinds(picture).items())[:MAX_CARDS]:
        ranks = [rank for rank, its_category in category_of.items() if its_category == category]
        names = ", ".join(map(str, ranks[:6]))
        more = f" and {len(ranks) - 6:,} more" if len(ranks) > 6 else ""
        who = f"rank{'s' if len(ranks) > 1 else ''} {names}{more}" if ranks else ""
        finding = findings.get(alike[0].finding)
        cards.append(
            _Card(
                who,
                alike[0],
                meaning_of(alike[0].finding),
                _advice_beyond(finding, alike[0].category),
                finding.reasons if finding else (),
            )
        )
    return cards


def _advice_beyond(finding: Finding | None, category: str) -> str:
    """Advice that knows more of this fault than that it is of its kind."""
    usual = next((e.advice for known, e in ENTRIES.items() if known.value == category), "")
    # Where the usual advice names a process, the runbook has the command, or it is gone.
    is_usual = finding is None or finding.advice[:_SAME] == usual[:_SAME]
    return "" if is_usual or finding is None else finding.advice


def _actions(actions: Sequence[Action], began_unix_s: float) -> list[_Done]:
    return [
        _Done(
            page_time(each.unix_s)[11:],
            f"+{each.unix_s - began_unix_s:,.1f} s" if each.unix_s >= began_unix_s else "",
            each.text,
        )
        for each in actions
    ]


def _tiles(
    report: Report, picture: HangPicture, blamed: Blamed | None
) -> list[tuple[str, str, str]]:
    facts = report.facts
    rows = _rows(facts)
    world = facts.get("world_size")
    hosts = len({str(row.get("host")) for row in rows if row.get("host")})
    tiles = []
    if isinstance(world, int):
        note = f"on {hosts:,} host{'s' if hosts != 1 else ''}" if hosts else ""
        tiles.append(("ranks", f"{world:,}", note))
    tiles.append(("wait for others", f"{picture.waiting:,}", f"rank{'s' * (picture.waiting != 1)}"))
    ages = [wait.in_flight_s for wait in picture.waits if wait.in_flight_s is not None]
    if ages:
        limit = facts.get("hang_timeout_s")
        note = f"limit {limit:g} s" if isinstance(limit, (int, float)) and limit else ""
        tiles.append(("longest in flight", f"{max(ages):,.1f} s", note))
    if blamed is not None:
        tiles.append(("score", f"{blamed.score:.2f}", "of 1: how strong the proof is"))
    return tiles


def _victims(value: object) -> list[tuple[str, str]]:
    rows = value if isinstance(value, list) else []
    return [
        (middle_cut(str(row.get("ranks", "")), _RANKS_CHARS), str(row.get("sentence", "")))
        for row in rows
        if isinstance(row, Mapping)
    ]


def _short(ranks: str) -> str:
    return middle_cut(ranks, _RANKS_CHARS)


def _telling(groups: Sequence[GroupProgress]) -> list[GroupProgress]:
    """Groups in which somebody waits, or not all have come equally far; else the first few."""
    telling = [g for g in groups if not g.agrees or any(row.in_flight for row in g.members)]
    return telling or list(groups[:MAX_IDLE_GROUPS])


def _beyond(items: Sized, most: int) -> int:
    return max(0, len(items) - most)


def _order(each: TransferFact) -> str:
    """What the peer has done of its half, in words."""
    half = "sends" if each.direction == "recv" else "receives"
    if each.peer_called is None:
        return "not known"
    if each.peer_size_bytes is not None and each.peer_size_bytes != each.size_bytes:
        return f"called it with {each.peer_size_bytes:,} B"
    if each.missing and each.peer_called > each.number:
        return "has called it; its device is still in something before it"
    if each.missing:
        return f"has called {each.peer_called:,} {half}: this one is missing"
    return f"has called it ({each.peer_called:,} {half})"


def _rows(facts: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    rows = facts.get("ranks")
    return [row for row in rows if isinstance(row, Mapping)] if isinstance(rows, list) else []


def _columns(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Those in which some rank says something."""
    rows = _rows(facts)
    return [
        (key, name)
        for key, name in _RANK_COLUMNS
        if any(row.get(key) not in (None, "") for row in rows)
    ]


def _rank_rows(facts: Mapping[str, Any], culprits: Sequence[int]) -> list[tuple[bool, list[str]]]:
    """Those at fault first, then those that died or are absent, then by rank."""
    place = {rank: number for number, rank in enumerate(culprits)}
    rows = sorted(
        _rows(facts),
        key=lambda row: (
            place.get(row.get("rank", -1), len(place)),
            row.get("alive") is True,
            row.get("rank", 0),
        ),
    )
    columns = _columns(facts)
    return [
        (row.get("rank") in place, [_cell(row.get(key)) for key, _ in columns])
        for row in rows[:MAX_RANK_ROWS]
    ]


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.1f}" if value == 0 or abs(value) >= 1 else f"{value:.2g}"
    return middle_cut(str(value), 240)
