"""The verdict that all nodes log, also where nothing is known of a node that was lost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from relkit.hang.model import RankView
from relkit.hang.stored_report import report_of
from relkit.hang.words import where
from relkit.launch.hang.incident import IncidentResult, judge
from relkit.launch.job.on_hang import OnHang
from relkit.launch.job.settings import MonitorSettings
from relkit.output import as_text
from tests.unit.hang.hang_builders import trained, view, waiting_for_buckets

WORLD = 3
LOST = "its node cannot be reached"


def judged(*views: RankView, on_hang: OnHang | None = None) -> IncidentResult:
    return judge(
        views,
        (),
        job_id="job",
        world_size=WORLD,
        trigger="a node was lost",
        settings=MonitorSettings(10.0, OnHang.ABORT, ()),
        started=1.0,
        on_hang=on_hang,
        absent={0: LOST},
    )


@pytest.mark.parametrize(
    ("on_hang", "is_hang", "action"),
    [(None, False, ""), (OnHang.ABORT, True, "abort"), (OnHang.REPORT, True, "report")],
)
def test_the_report_says_what_follows(on_hang: OnHang | None, is_hang: bool, action: str) -> None:
    facts = report_of(judged(waiting(1), waiting(2), on_hang=on_hang).report.to_json()).facts
    assert (facts["is_hang"], facts["action"]) == (is_hang, action)


def waiting(rank: int) -> RankView:
    return view(rank, WORLD, hook=trained(rank, WORLD, 6, waiting_for_buckets()))


def test_where_a_rank_ran_is_said_as_far_as_it_is_known() -> None:
    assert where("node7", 4711) == " (node7, pid 4711)"
    assert where("node7", 0) == " (node7)"
    assert where("", 4711) == " (pid 4711)"
    assert where("", 0) == ""
    assert where("node\x1b7\n", 0) == " (node?7?)"


def test_a_rank_of_which_nothing_is_known_has_neither_host_nor_process() -> None:
    result = judged(waiting(1), waiting(2))
    assert result.sentence == f"rank 0: {LOST}"
    assert result.report.findings[0].title.startswith(f"rank 0: {LOST}; ")
    assert result.report.facts["culprits"] == [0]
    assert result.report.facts["culprit_details"][0]["pid"] is None
    assert result.report.facts["ranks"][0]["pid"] is None
    for text in (result.sentence, as_text(result.report)):
        assert "pid 0" not in text
        assert "()" not in text
        assert "(," not in text


@pytest.mark.parametrize("host", ["node1", ""])
def test_a_rank_that_died_is_named_by_what_is_known_of_it(host: str) -> None:
    killed = replace(waiting(0), host=host, pid=0, alive=False, exit_code=-9)
    result = judged(killed, waiting(1), waiting(2))
    assert result.sentence.startswith(f"rank 0{' (node1)' if host else ''}: ")
