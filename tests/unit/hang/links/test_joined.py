"""What is said of the measured links, and what follows for scores and findings."""

from __future__ import annotations

from dataclasses import replace

import pytest

from relkit.findings import Report, Status
from relkit.hang.links.joined import BAD, GOOD, NOT_MEASURED, in_words, with_links, with_network
from relkit.hang.links.model import LinkCheck, LinkMeasurement, Suspects
from relkit.hang.model import Category, Culprit, HangVerdict
from relkit.hang.report import headline
from relkit.ranks import RankSet

NAMES = {0: "h1", 1: "h2", 2: "h3"}
SUSPECTS = Suspects({node: RankSet.of([node]) for node in (2, 0, 1)})


def check(*speeds: float, names: dict[int, str] | None = None) -> LinkCheck:
    """Links h1-h2, h1-h3 and h2-h3; 0 for one that is cut, below 0 for a probe that failed."""
    links = [
        LinkMeasurement(low, high, speed, 0.1)
        if speed > 0
        else LinkMeasurement(low, high, failure="no answer", is_cut=not speed)
        for (low, high), speed in zip([(0, 1), (0, 2), (1, 2)], speeds, strict=False)
    ]
    return LinkCheck(SUSPECTS, NAMES if names is None else names, tuple(links))


def alone() -> LinkCheck:
    """The link of the suspect's node to one other, and no more."""
    link = LinkMeasurement(0, 2, 940, 0.1)
    return LinkCheck(Suspects({node: RankSet.of([node]) for node in (2, 0)}), NAMES, (link,))


def verdict(category: Category = Category.BLOCKED, score: float = 0.9) -> HangVerdict:
    culprit = Culprit(2, "h3", 7, category, "sleeps for 9 s", ("it sleeps",), score)
    other = replace(culprit, rank=9, score=0.95)
    return HangVerdict((culprit, other), ())


@pytest.mark.parametrize(
    ("measured", "words"),
    [
        (
            check(940, 12, 940),
            "the link h1-h3 carries 12 MB/s, the others 940 MB/s",
        ),
        (
            check(900, 0, 940),
            "the link h1-h3 does not answer, the others carry 900-940 MB/s",
        ),
        (
            check(1940, 0, 12.25),
            "the link h1-h3 does not answer and the link h2-h3 carries 12 MB/s, the other 1940"
            " MB/s",
        ),
        (
            check(940, 0, 0),
            "the links h1-h3, h2-h3 do not answer, the other carries 940 MB/s",
        ),
        (
            check(900, 940, 920),
            "the 3 measured links between h1, h2 and h3 are good (900-940 MB/s, round trip 0.1 ms)",
        ),
        (
            check(900, 940, -1),
            "the 2 measured links between h1, h2 and h3 are good (900-940 MB/s, round trip 0.1 ms; "
            "1 could not be measured)",
        ),
        (
            check(900),
            "the link h1-h2 answers and carries 900 MB/s (round trip 0.1 ms; there is no other to "
            "compare it with)",
        ),
        (check(0, 0, 0), "the links between their nodes could not be measured"),
        (
            check(940, 12, 940, names={0: "rack-1"}),
            "the link rack-1 - node 2 carries 12 MB/s, the others 940 MB/s",
        ),
        (
            replace(check(940), unreachable=(2,)),
            "h3 does not answer the other launchers",
        ),
    ],
)
def test_in_words(measured: LinkCheck, words: str) -> None:
    assert in_words(measured) == words
    joined = with_network(verdict(), measured)
    assert headline(joined).endswith(f"; {words}")
    assert joined.culprits[0].reasons[-1] == words


@pytest.mark.parametrize(
    ("measured", "category", "score"),
    [
        # Good links leave less doubt of a rank that waits on its host, and more of one whose host
        # is said not to answer; bad ones the other way round.
        (check(900, 940, 920), Category.BLOCKED, 0.92),
        (check(900, 940, 920), Category.ABSENT, 0.72),
        (check(900, 12, 920), Category.BLOCKED, 0.72),
        (check(900, 12, 920), Category.ABSENT, 0.92),
        (replace(check(900), unreachable=(2,)), Category.ABSENT, 0.92),
        # A bad link elsewhere is none of its own.
        (check(12, 940, 920), Category.BLOCKED, 0.92),
        # What is proven by other means.
        (check(900, 12, 920), Category.MISMATCH, 0.9),
        (check(900, 940, 920), Category.DEAD, 0.9),
        # With nothing to compare it with, or nothing measured: no evidence.
        (alone(), Category.BLOCKED, 0.9),
        (check(940), Category.BLOCKED, 0.9),
        (check(940, 930, -1), Category.BLOCKED, 0.9),
        (check(-1, -1, -1), Category.BLOCKED, 0.9),
    ],
)
def test_scores(measured: LinkCheck, category: Category, score: float) -> None:
    before = verdict(category)
    after = with_network(before, measured)
    assert after.culprits[0].score == score
    # A rank of none of these nodes stays as it is, and so does the order.
    assert after.culprits[1] == before.culprits[1]
    assert [each.rank for each in after.culprits] == [2, 9]


def test_nothing_measured_changes_nothing() -> None:
    nothing = LinkCheck(SUSPECTS, {}, problem="no")
    assert with_network(verdict(), nothing) == verdict()


def report(*culprits: int) -> Report:
    return Report("hang", (), {"culprits": list(culprits)})


def test_findings() -> None:
    bad = with_links(report(2), check(940, 12, 940)).findings[-1]
    assert (bad.id, bad.status, bad.ranks, bad.nodes) == (BAD, Status.FAIL, "0,2", "h1,h3")
    assert [(each.name, each.value) for each in bad.evidence] == [
        ("link h1-h2", 940),
        ("link h1-h3", 12),
        ("link h2-h3", 940),
    ]
    good = with_links(report(2), check(940, 930, 940)).findings[-1]
    assert (good.id, good.status, good.ranks) == (GOOD, Status.OK, "0-2")
    unmeasured = with_links(report(2), check(0, 0, 0)).findings[-1]
    assert (unmeasured.id, unmeasured.status) == (NOT_MEASURED, Status.WARN)
    gone = with_links(report(2), replace(check(940), unreachable=(2,))).findings[-1]
    assert (gone.id, gone.nodes) == (BAD, "h3")


def test_a_bad_link_comes_first_only_where_no_rank_is_at_fault() -> None:
    other = with_links(report(), check(940, 930, 940)).findings
    for culprits, place in (([], 0), ([2], 1)):
        told = with_links(replace(report(*culprits), findings=other), check(940, 12, 940))
        assert told.findings[place].id == BAD


def test_who_was_left_out_is_told() -> None:
    left_out = replace(
        check(940, 930, 940), suspects=replace(SUSPECTS, left_out=(8, 9)), problem="h4 said no"
    )
    told = with_links(report(2), left_out)
    assert told.findings[0].reasons == ("h4 said no", "2 more nodes were left out: 8-9")
    facts = told.facts["links"]
    assert facts["left_out"] == [8, 9]
    assert facts["nodes"][0] == {"node": 2, "name": "h3", "ranks": "2"}
    assert facts["measured"][1] == {
        "nodes": [0, 2],
        "health": "good",
        "mb_per_s": 930,
        "round_trip_ms": 0.1,
        "failure": "",
    }


def test_a_job_on_one_node_gets_no_finding() -> None:
    alone = LinkCheck(Suspects({0: RankSet.of([0, 1])}), {}, problem="no link to measure")
    told = with_links(report(1), alone)
    assert told.findings == ()
    assert told.facts["links"]["problem"] == "no link to measure"
