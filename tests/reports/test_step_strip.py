"""The strip of the newest steps: its shares fill the steps, and nothing in it can break a page."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest

from relkit.reports.drawing.chart_scale import GUTTER, PLOT
from relkit.reports.jobs import step_strip
from relkit.straggler.history_types import History
from relkit.straggler.model import GC
from tests.reports.straggler_jobs import job

_BAR = re.compile(r"M([\d.]+) ([\d.]+)h([\d.]+)v")


def drawn_of(history: History) -> str:
    """The picture, which is well-formed."""
    svg = step_strip.render(history)
    if svg:
        ElementTree.fromstring(svg)  # noqa: S314  our own
    return svg


def bars(svg: str, kind: str) -> list[tuple[float, float, float]]:
    """(left, top, width) of what is drawn of a kind."""
    drawn = re.search(rf'<path class="{kind}" d="([^"]*)"', svg)
    return [(float(x), float(y), float(w)) for x, y, w in _BAR.findall(drawn[1])] if drawn else []


def test_each_rank_has_its_shares_and_together_they_fill_the_steps() -> None:
    svg = drawn_of(job(8, 100))
    every = [bar for kind in step_strip.KINDS for bar in bars(svg, kind)]
    by_row: dict[float, float] = {}
    for _, top, width in every:
        by_row[top] = by_row.get(top, 0.0) + width
    assert len(by_row) == 8
    # What is narrower than a twentieth of a pixel is left out.
    assert all(abs(filled - PLOT) < 8 for filled in by_row.values())
    assert min(x for x, _, _ in every) == GUTTER
    assert "rank 2 on node02" in svg
    # Rank 2 collects garbage for two tenths of a second now and then.
    assert {top for _, top, width in bars(svg, "gc") if width > 20} == {7.5 + 2 * 20.0}


@pytest.mark.parametrize("ranks", [1, 33, 1024])
def test_many_ranks_share_rows(ranks: int) -> None:
    svg = drawn_of(job(ranks, 30, slow=ranks > 16))
    assert svg.count("<rect") <= 128 + 6
    assert len(svg) < 600_000


def test_what_is_not_known_is_not_drawn() -> None:
    history = job(4, 30, slow=False)
    local, parts = history.local_s.copy(), history.parts.copy()
    local[1], parts[:, 1] = np.nan, np.nan
    parts[:, 2] = np.nan
    parts[GC, 3] = np.inf
    svg = drawn_of(replace(history, local_s=local, parts=parts))
    assert not re.search(r"nan[ h\"v]", svg)
    rows = {top for kind in step_strip.KINDS for _, top, _ in bars(svg, kind)}
    assert 7.5 + 20.0 not in rows
    # Of rank 2 only the time as a whole is known.
    assert "rank 2 on node02: other work of the host" in svg
    no_times = replace(history, step_unix_s=np.full(30, np.nan))
    assert drawn_of(no_times) == ""


def test_names_of_hosts_are_only_text() -> None:
    history = replace(job(4, 30, slow=False), hosts=("<script>alert(1)</script>",) * 4)
    svg = drawn_of(history)
    assert "<script" not in svg


def test_a_step_in_which_clocks_went_back_is_as_long_as_its_ranks_were_busy() -> None:
    history = job(4, 30, slow=False)
    ends = history.step_unix_s.copy()
    ends[20:] -= 3600.0
    svg = drawn_of(replace(history, step_unix_s=ends))
    assert re.search(r"step \(2\.\d+ s\)", svg)
