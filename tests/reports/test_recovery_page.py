"""The page of a run with restarts: how it went first, tolerant, deaf to hostile text."""

from __future__ import annotations

import re
from collections.abc import Callable

from relkit.accounting.read_journal import JournalRead
from relkit.accounting.records import What
from relkit.accounting.report import report_of
from relkit.findings import Evidence, Finding, Report, Status
from relkit.reports import recovery_page
from relkit.reports.html import headline
from tests.unit.accounting.stories import Story


def page() -> str:
    story = Story("demo-41").attempt(0, 10).fault().attempt(8, 20, number=1)
    records = tuple(story.add(What.ENDED, name="succeeded").records)
    argv = ("relkit", "launch", "train.py")
    return recovery_page.render(report_of([JournalRead(records)], argv=argv, started=1.79e9))


def body(text: str) -> str:
    return re.sub(r"<[^>]+>", " ", re.sub(r"<style>.*?</style>", "", text, flags=re.S))


def test_how_it_went_comes_before_everything_else() -> None:
    text = body(page())
    order = ["job demo-41 has succeeded", "Where the time of each restart went", "Evidence"]
    places = [text.index(part) for part in order]
    assert places == sorted(places)


def test_the_page_is_the_one_that_was_looked_at(gold: Callable[[str, str], None]) -> None:
    gold("recovery.html", re.sub(r"relkit \d[\w.+]*", "relkit VERSION", page()))


def test_a_report_of_nothing_has_a_page() -> None:
    assert "<h1>" in recovery_page.render(Report("status", (), {"job_id": None}))


def hang(culprits: list[int], **facts: object) -> str:
    report = Report("hang", (), {"culprits": culprits, **facts})
    return headline(report, culprits)


def test_the_headline_counts_the_ranks_at_fault() -> None:
    assert hang([2, 5]) == "Ranks 2, 5 hold up the job"
    assert hang(list(range(100))) == "Ranks 0, 1, 2, 3, 4, 5 and 94 more hold up the job"
    assert hang([]) == "The job hangs; no rank stands out"
    assert hang([], is_hang=False) == "The job failed; no rank stands out"


def test_the_headline_says_what_they_did() -> None:
    for category, one, several in (
        ("dead", "Rank 2 took the job down", "Ranks 2, 5 took the job down"),
        ("slow-exit", "Rank 2 is slow to exit", "Ranks 2, 5 are slow to exit"),
        ("blocked-on-host", "Rank 2 holds up the job", "Ranks 2, 5 hold up the job"),
    ):
        details = [{"rank": 2, "category": category}]
        assert hang([2], culprit_details=details) == one
        assert hang([2, 5], culprit_details=details) == several


def test_a_bad_link_is_in_the_headline_where_no_rank_is_at_fault() -> None:
    cut = Finding("RK-HANG-024", Status.FAIL, "the link h2-h3 does not answer")
    words = headline(Report("hang", (cut,), {"culprits": []}), [])
    assert words == "The job hangs; no rank stands out, but the network between its nodes does"


def test_hostile_text_is_escaped_everywhere() -> None:
    bad = "<script>alert(1)</script>\u202e\x00`<b>`"
    finding = Finding(bad, Status.FAIL, bad, reasons=(bad,), advice=bad,
                      evidence=(Evidence(bad, bad, bad, bad, bad),))  # fmt: skip
    facts = {"job_id": bad}
    text = recovery_page.render(Report("status", (finding, finding), facts, argv=(bad,)))
    assert "<script" not in text
    assert "<b>" not in text
    assert "\u202e" not in text
    assert "\x00" not in text
    assert "<code>&lt;b&gt;</code>" in text


def test_nothing_is_fetched_from_outside() -> None:
    assert not re.findall(r"(?:src|href)\s*=|@import|url\(|<link|<iframe", page())
