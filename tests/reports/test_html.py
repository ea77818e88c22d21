"""The report page: verdict first, tolerant of what is not there, deaf to hostile text."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from relkit.findings import Evidence, Finding, Report, Status
from relkit.reports import html
from relkit.reports.flames import flame_svg
from relkit.reports.flames.flame_svg import script_block, style_block
from tests.reports.trees import hang

FINDING = Finding(
    "RK-HANG-001",
    Status.FAIL,
    "rank 2 (node07, pid 48213): in train.py:52 next_batch, waiting on a lock for 9.8 s",
    ranks="2",
    nodes="node07",
    reasons=("rank 2 has not entered all_reduce #41", "its peers have"),
    evidence=(Evidence("in flight", 9.8, "s", 5.0, "recorder of ranks 0-1,3"),),
    advice="Look at who holds the lock; `py-spy dump --pid 48213` shows it.",
)
FACTS: dict[str, Any] = {
    "culprits": [2],
    "victims": [{"ranks": "0-1,3", "sentence": "wait for it in all_reduce #41"}],
    "ranks": [
        {"rank": r, "host": "node07", "pid": 48211 + r, "state": "S", "activity": "all_reduce #41"}
        for r in range(4)
    ],
    "trigger": "no rank has finished an operation for 10.0 s",
    "job_id": "demo-41",
}


def report(**facts: object) -> Report:
    return Report("hang", (FINDING,), facts, 1_790_000_000.0, 1.2, ("relkit", "launch", "train.py"))


def page(**facts: object) -> str:
    return html.render(report(**{**FACTS, **facts}), {})


def body(text: str) -> str:
    return re.sub(r"<[^>]+>", " ", re.sub(r"<style>.*?</style>", "", text, flags=re.S))


def test_the_verdict_comes_before_everything_else() -> None:
    text = body(page())
    order = [
        "Rank 2 holds up the job",
        "waiting on a lock for 9.8 s",
        "Why relkit believes it",
        "rank 2 has not entered",
        "Who only waits",
        "What to do next",
        "Ranks",
        "Evidence",
    ]
    places = [text.index(part) for part in order]
    assert places == sorted(places)


def test_the_page_is_the_one_that_was_looked_at(gold: Callable[[str, str], None]) -> None:
    gold("report.html", page())


def test_culprits_lead_the_rank_table_and_long_tables_end() -> None:
    rows = [{"rank": r, "host": f"n{r}"} for r in range(3000)]
    text = page(ranks=rows, culprits=[2999])
    assert re.findall(r">(\d+)</td><td[^>]*>n", text)[:3] == ["2999", "0", "1"]
    assert "2,488 more ranks are in report.json." in text


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"culprits": None, "ranks": None, "victims": None},
        {"culprits": "2", "ranks": {"a": 1}, "victims": "x", "trigger": 5},
        {"culprits": [2], "ranks": [{"rank": None}, 5, {"other": [1]}], "victims": ["one", {}]},
    ],
)
def test_absent_and_odd_facts_do_not_stop_the_page(facts: dict[str, object]) -> None:
    assert "<h1>" in html.render(report(**facts), {})
    assert "<h1>" in html.render(Report("stacks", (), facts), {})


def test_several_culprits_and_none() -> None:
    assert "Ranks 2, 5 hold up the job" in page(culprits=[2, 5])
    assert "Ranks 0, 1, 2, 3, 4, 5 and 94 more hold up the job" in page(culprits=list(range(100)))
    assert "The job hangs; no rank stands out" in page(culprits=[])


@pytest.mark.parametrize(
    ("category", "one", "several"),
    [
        ("dead", "Rank 2 took the job down", "Ranks 2, 5 took the job down"),
        ("slow-exit", "Rank 2 is slow to exit", "Ranks 2, 5 are slow to exit"),
        ("blocked-on-host", "Rank 2 holds up the job", "Ranks 2, 5 hold up the job"),
    ],
)
def test_the_headline_says_what_they_did(category: str, one: str, several: str) -> None:
    details = [{"rank": 2, "category": category}]
    assert one in page(culprits=[2], culprit_details=details)
    assert several in page(culprits=[2, 5], culprit_details=details)


def test_a_bad_link_leads_where_no_rank_is_at_fault() -> None:
    cut = Finding("RK-HANG-024", Status.FAIL, "the link h2-h3 does not answer")
    nobody = Finding("RK-HANG-010", Status.UNKNOWN, "no rank is late")
    text = html.render(Report("hang", (cut, nobody), {"culprits": []}), {})
    assert "no rank stands out, but the network between its nodes does" in text
    assert "The link h2-h3 does not answer" in text


def test_hostile_text_is_escaped_everywhere() -> None:
    bad = "<script>alert(1)</script>\u202e\x00`<b>`"
    finding = Finding(bad, Status.FAIL, bad, reasons=(bad,), advice=bad,
                      evidence=(Evidence(bad, bad, bad, bad, bad),))  # fmt: skip
    facts = {**FACTS, "ranks": [{"rank": 2, bad: bad, "host": bad}], "trigger": bad, "job_id": bad,
             "victims": [{"ranks": bad, "sentence": bad}]}  # fmt: skip
    text = html.render(Report("hang", (finding, finding), facts, argv=(bad,)), {})
    assert "<script" not in text
    assert "<b>" not in text
    assert "\u202e" not in text
    assert "\x00" not in text
    assert "<code>&lt;b&gt;</code>" in text


def test_pictures_are_inlined_once_with_one_style_and_one_script() -> None:
    svgs = {v: flame_svg.render(hang(v), title=v) for v in ("py", "cpp", "mixed")}
    text = html.render(report(**FACTS), svgs)
    assert text.count("<svg ") == 3
    assert text.count(style_block()) == 1
    assert text.count(script_block()) == 1
    assert text.index(style_block()) < text.index('class="rk-body"')
    assert text.index(script_block()) > text.rindex('class="rk-body"')
    tabs = re.findall(r'<label for="tab-\d">([^<]+)</label>', text)
    assert tabs == ["Python + native", "Python", "Native"]


def test_nothing_is_fetched_from_outside() -> None:
    assert not re.findall(r"(?:src|href)\s*=|@import|url\(|<link|<iframe", page())
