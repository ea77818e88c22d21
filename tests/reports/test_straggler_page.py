"""The straggler page: the accused stand out, no slow rank is lost, bad names do nothing."""

from __future__ import annotations

import base64
import itertools
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from relkit.reports.drawing.chart_scale import Steps, ticks
from relkit.reports.drawing.palette import contrast
from relkit.reports.straggler import (
    straggler_heat,
    straggler_lateness,
    straggler_page,
    straggler_parts,
)
from relkit.straggler.model import PARTS, Cause, Subject, Verdict
from relkit.straggler.present.metrics import metrics_of
from relkit.straggler.present.report import straggler_report
from relkit.straggler.transport.history import History, LinkRow, RaisedVerdict
from tests.reports.straggler_jobs import job
from tests.reports.test_png import read

HOSTILE = "<script>alert(1)</script>\u202e\x00\"'&]]>`<b>`"


def page(history: History) -> str:
    report = straggler_report(history, argv=("relkit", "straggler", "report"), started=1.79e9)
    return straggler_page.render(report, history, metrics_of(history))


def heat(history: History) -> str:
    return straggler_heat.render(history, metrics_of(history))


def pictures(svg: str) -> list[Any]:
    """Cells of the light pictures, top to bottom."""
    found = re.findall(r'<image class="light"[^>]*base64,([^"]+)"', svg)
    return [read(base64.b64decode(data))[0] for data in found]


def comparable(text: str) -> str:
    """With cells in place of compressed bytes, which differ from one zlib to the next."""

    def cells(match: re.Match[str]) -> str:
        found, chunks = read(base64.b64decode(match.group(1)))
        rows = "/".join("".join(f"{cell:x}" for cell in row) for row in found.tolist())
        return f"cells,{chunks[b'PLTE'].hex()},{rows}"

    return re.sub(r"base64,([^\"]+)", cells, text)


def test_the_page_is_the_one_that_was_looked_at(gold: Callable[[str, str], None]) -> None:
    gold("straggler.html", comparable(page(job(8, 60))))


def test_a_healthy_page_is_the_one_that_was_looked_at(gold: Callable[[str, str], None]) -> None:
    gold("straggler-healthy.html", comparable(page(job(8, 60, slow=False))))


def test_the_verdict_is_the_headline() -> None:
    text = page(job(8, 200))
    assert "<h1>Rank 5, the link node02 → node03 and rank 2 slow the job down</h1>" in text
    one = replace(job(8, 200), verdicts=job(8, 200).verdicts[:1])
    assert "<h1>Rank 5 slows the job down</h1>" in page(one)
    lead = r"Rank 5 \(node03\) computes 12\u00a0% longer than its peers since step 260; it cost the"
    assert re.search(rf'class="lead">{lead} job 1\.68 s.* relkit is 98 % sure', page(one))
    many = replace(one, verdicts=one.verdicts * 9)
    assert "<h1>Rank 5, rank 5 and 7 more slow the job down</h1>" in page(many)
    assert "<h1>Nobody slows the job down</h1>" in page(job(8, 200, slow=False))
    assert "<h1>relkit could not tell</h1>" in page(job(8, 5, slow=False))


def test_a_large_job_is_a_small_page() -> None:
    assert len(page(job(1024, 500))) < 2_000_000


@pytest.mark.parametrize("rank", [0, 333, 1023])
def test_one_slow_step_of_one_rank_stays_visible(rank: int) -> None:
    quiet = job(1024, 2000, slow=False)
    own = np.full((1024, 2000), 0.1, np.float32)
    own[rank, 1234] = 0.3
    (cells,) = pictures(heat(replace(quiet, local_s=own)))
    assert cells.shape[0] <= 256
    assert (cells == straggler_heat.levels(np.array([[2.0]], np.float32))[0, 0]).sum() == 1
    assert cells[rank // 4, 1234 // 3] == len(straggler_heat.BOUNDS)


def test_accused_ranks_are_enlarged_framed_and_named() -> None:
    svg = heat(job(1024, 100))
    assert len(pictures(svg)) == 2
    assert pictures(svg)[0].shape == (3, 100)
    root = ElementTree.fromstring(svg)  # noqa: S314  our own output
    frames = [r.get("class") for r in root.iter("{http://www.w3.org/2000/svg}rect")]
    assert frames.count("frame") == 3  # two ranks, and the legend's
    assert frames.count("frame past") == 2
    assert ">rank 640</text>" in svg
    assert ">640 · node081</text>" in svg
    assert "slow-network" in svg


def test_ranks_stand_host_by_host() -> None:
    assert straggler_heat.by_host(["b", "a", "b", "a"]) == [0, 2, 1, 3]


def test_what_is_not_known_is_see_through() -> None:
    own = job(8, 50, slow=False).local_s.copy()
    own[3, 10:20] = np.nan
    (cells,) = pictures(heat(replace(job(8, 50, slow=False), local_s=own)))
    assert (cells == straggler_heat.NOT_KNOWN).sum() == 10


@pytest.mark.parametrize("dark", [False, True])
def test_colours_leave_the_paper_steadily(dark: bool) -> None:
    paper = "#14161b" if dark else "#ffffff"
    away = [contrast(paper, colour) for colour in straggler_heat.colours(dark=dark)]
    assert away == sorted(away)
    assert all(b / a > 1.15 for a, b in itertools.pairwise(away))


@pytest.mark.parametrize(
    ("wanted", "room"), [([5, 5, 5], 10), ([0, 99, 100], 30), ([50], 10), ([], 5)]
)
def test_labels_do_not_overlap(wanted: list[float], room: float) -> None:
    placed = straggler_heat.spread(wanted, 0, 100, room)
    assert all(b - a >= room for a, b in itertools.pairwise(placed))
    assert all(0 <= at <= 100 for at in placed)


def test_ticks_are_round_and_steps_are_on_the_axis() -> None:
    assert ticks(0, 100, 5) == [0, 20, 40, 60, 80, 100]
    assert ticks(0, 0, 5) == [0]
    assert len(ticks(200, 700, 9)) <= 9
    text = Steps(0, 3).axis(0)
    assert all(f">{step}<" in text for step in range(4))
    assert ">0.5<" not in text


def test_lateness_has_a_line_for_each_accused_rank_up_to_five() -> None:
    slow = job(64, 100)
    one = slow.verdicts[0]
    many = [replace(one, verdict=replace(one.verdict, rank=rank)) for rank in range(9)]
    svg = straggler_lateness.render(replace(slow, verdicts=tuple(many)))
    assert svg.count("<title>rank ") == straggler_lateness.MAX_LINES
    assert straggler_lateness.render(replace(slow, late_s=np.full_like(slow.late_s, np.nan))) == ""


def test_parts_tell_where_the_time_went() -> None:
    svg = straggler_parts.render(metrics_of(job(8, 300)).breakdowns, job(8, 300).hosts)
    (collected,) = re.findall(r"garbage collection: (1[0-9][\d.]*) ms", svg)
    assert 15 < float(collected) < 22
    assert straggler_parts.render((), ()) == ""


@pytest.mark.parametrize(
    "odd",
    [
        {"local_s": np.full((8, 60), np.nan, np.float32)},
        {"local_s": np.zeros((8, 60), np.float32)},
        {"local_s": np.full((8, 60), -1.0, np.float32)},
        {"local_s": np.full((8, 60), np.inf, np.float32)},
        {"late_s": np.full((8, 60), np.inf, np.float32)},
        {"late_s": np.full((8, 60), np.nan, np.float32)},
        {"parts": np.full((len(PARTS), 8, 60), np.nan, np.float32)},
        {"step_unix_s": np.full(60, np.nan)},
        {"step_unix_s": np.full(60, 5.0)},
        {"scores": np.full(8, np.nan, np.float32), "evidence": np.full(8, 9.0, np.float32)},
        {"peers": np.arange(8, dtype=np.int32)},
        {"links": (LinkRow("a", "b", 1e300, -5.0, -1.0),)},
        {"hosts": ("",) * 8},
        {"first_step": 1 << 60},
    ],
)
def test_odd_histories_do_not_stop_the_page(odd: dict[str, Any]) -> None:
    with np.errstate(over="ignore"):
        assert "<h1>" in page(replace(job(8, 60), **odd))


def test_odd_verdicts_do_not_stop_the_page() -> None:
    base = job(8, 60)
    odd = tuple(
        RaisedVerdict(Verdict(subject, cause, score, conf, first, cost, (), rank, ends), said, over)
        for subject in Subject
        for cause in Cause
        for score, conf, first, cost, rank, ends, said, over in (
            (-1.0, 9.0, 1 << 50, -3.0, 99, (), 0, -1),
            (1e300, -1.0, 0, 1e300, -1, ("a",), 1 << 50, 3),
        )
    )
    assert "<h1>" in page(replace(base, verdicts=odd, past=odd))


def test_no_step_yet() -> None:
    none = History(
        "j", 2, 0, 0, ("a", "b"), np.empty((2, 0), np.float32), np.empty((2, 0), np.float32),
        np.empty((len(PARTS), 2, 0), np.float32), np.empty(0),
    )  # fmt: skip
    assert "could not tell: no step of any rank was seen" in page(none)


def test_hostile_names_are_escaped_everywhere() -> None:
    base = job(8, 60)
    bad = tuple(
        replace(
            raised,
            verdict=replace(raised.verdict, reasons=(HOSTILE,), ends=(HOSTILE, HOSTILE)),
        )
        for raised in base.verdicts
    )
    text = page(
        replace(
            base, job_id=HOSTILE, hosts=(HOSTILE,) * 8, verdicts=bad, notes=(HOSTILE,),
            links=(LinkRow(HOSTILE, HOSTILE, 2.0, 0.1, 0.0),),
            clock_offsets={HOSTILE: (0.0, 0.0)}, settings={HOSTILE: HOSTILE},
        )
    )  # fmt: skip
    assert "<script" not in text
    assert "<b>`" not in text
    assert "\u202e" not in text
    assert "\x00" not in text
    for svg in re.findall(r"<svg.*?</svg>", text, re.S):
        ElementTree.fromstring(svg)  # noqa: S314  our own output


def test_nothing_is_fetched_from_outside() -> None:
    text = page(job(64, 60))
    assert not re.findall(r"\ssrc\s*=|@import|url\((?!#)|<link|<iframe|<script", text)
    assert all(found.startswith("data:image/png;") for found in re.findall(r'href="([^"]*)', text))
