"""The report of a hang: the sentence of the issue, stable keys, nothing that hides a rank."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from relkit.findings import Status
from relkit.hang.advice import ENTRIES, NO_STACK, advice_for
from relkit.hang.attribute import attribute
from relkit.hang.model import Category, JobView, Manner, RankView, Suspicion
from relkit.hang.report import fold_hosts, hang_report, headline
from relkit.output import as_json, as_text
from relkit.ranks import RankSet
from tests.unit.hang.hang_builders import job, trained, view, waiting_for_buckets

WORLD = 4


def hung_on_a_lock(world: int = WORLD) -> JobView:
    views = [
        view(r, world, stack="ddp", hook=trained(r, world, 6, waiting_for_buckets()))
        for r in range(world)
    ]
    views[2] = view(2, world, stack="lock", hook=trained(2, world, 6))
    return job(views)


def test_the_sentence_of_the_issue() -> None:
    found = hung_on_a_lock()
    verdict = attribute(found)
    report = hang_report(found, verdict, argv=["relkit", "launch"], started=1.0, duration_s=0.5)
    title = report.findings[0].title
    assert title == headline(verdict)
    assert title == (
        "rank 2 (n0, pid 1002): in examples/train.py:88 Loader.next_batch, waiting on a lock for "
        "12.0 s; ranks 0-1,3 wait for it in all_reduce #12 of the default group"
    )
    assert report.findings[0].id == "RK-HANG-008"
    assert report.status is Status.FAIL
    assert report.exit_code == 1


def test_what_was_suspected_before_is_evidence() -> None:
    ours = Suspicion(RankSet.of([2]), "rank 2 has not joined", Manner.FROZEN, 288.25)
    other = Suspicion(RankSet.of([0]), "rank 0 has not joined", Manner.MOVING, 12.0)
    found = replace(hung_on_a_lock(), suspicions=(ours, other))
    report = hang_report(found, attribute(found), started=1.0)
    suspected = "suspected before this verdict: rank 2 has not joined"
    assert report.findings[0].reasons[-1] == suspected
    plain = json.loads(as_json(report))
    assert plain["suspicions"] == [
        {"ranks": "2", "sentence": "rank 2 has not joined", "manner": "frozen", "stalled_s": 288.2},
        {"ranks": "0", "sentence": "rank 0 has not joined", "manner": "moving", "stalled_s": 12.0},
    ]


def test_the_json_has_its_keys() -> None:
    found = hung_on_a_lock()
    plain = json.loads(as_json(hang_report(found, attribute(found), started=1.0)))
    assert plain["schema"] == "relkit.hang/1"
    assert plain["culprits"] == [2]
    assert plain["culprit_details"][0]["category"] == "blocked-on-host"
    assert plain["victims"] == [
        {"ranks": "0-1,3", "sentence": "wait for it in all_reduce #12 of the default group"}
    ]
    assert (plain["job_id"], plain["world_size"], plain["hang_timeout_s"]) == ("job-1", 4, 10.0)
    assert plain["trigger"] == "a test"
    assert plain["absent"] == ""
    assert [row["rank"] for row in plain["ranks"]] == [0, 1, 2, 3]
    assert plain["ranks"][0]["in_flight"] == "all_reduce #12 of the default group"
    assert plain["ranks"][0]["in_flight_s"] == pytest.approx(11.0)
    assert plain["ranks"][2]["activity"].endswith("Loader.next_batch, waiting on a lock")
    assert plain["ranks"][2]["in_flight_s"] is None
    assert set(plain["ranks"][0]) == {
        "rank", "host", "pid", "alive", "state", "activity", "last_seq", "in_flight",
        "in_flight_s", "idle_s", "cpu_share", "exit_code", "note",
    }  # fmt: skip


def test_the_evidence_holds_the_wait_against_the_timeout() -> None:
    found = hung_on_a_lock()
    evidence = hang_report(found, attribute(found)).findings[0].evidence
    longest = next(e for e in evidence if e.name == "longest operation in flight")
    assert (longest.value, longest.threshold) == (11.0, 10.0)


def test_a_rank_without_a_stack_is_a_warning_of_its_own() -> None:
    found = hung_on_a_lock()
    ranks = (*found.ranks[:3], replace(found.ranks[3], dump=None))
    report = hang_report(replace(found, ranks=ranks), attribute(found))
    assert (report.findings[1].id, report.findings[1].ranks) == ("RK-HANG-011", "3")
    assert report.findings[1].status is Status.WARN


def test_nobody_at_fault_is_unknown_and_not_healthy() -> None:
    views = [
        view(r, WORLD, stack="ddp", hook=trained(r, WORLD, 6, waiting_for_buckets()))
        for r in range(WORLD)
    ]
    report = hang_report(job(views), attribute(job(views)))
    assert report.findings[0].id == "RK-HANG-010"
    assert report.exit_code == 3
    assert report.facts["culprits"] == []


def test_absent_ranks_fold_into_one_finding() -> None:
    views = [
        view(r, 8, stack="ddp", hook=trained(r, 8, 6, waiting_for_buckets())) for r in range(4)
    ]
    views += [
        RankView(r, "n1", 0, False, absent_reason="host n1 did not answer") for r in range(4, 8)
    ]
    report = hang_report(job(views), attribute(job(views)))
    assert report.findings[0].id == "RK-HANG-001"
    assert report.findings[0].title.startswith("ranks 4-7 (n1): host n1 did not answer; ")
    assert report.findings[0].nodes == "n1"
    assert report.facts["absent"] == "4-7"
    assert report.facts["culprits"] == [4, 5, 6, 7]


def test_ranks_that_did_the_same_share_a_finding() -> None:
    views = [view(r, 8, stack="file", hook=trained(r, 8)) for r in range(8)]
    report = hang_report(job(views), attribute(job(views)))
    assert [f.ranks for f in report.findings] == ["0-7"]
    assert report.findings[0].nodes == "n[0-1]"


def test_hostile_names_stay_on_their_line() -> None:
    found = hung_on_a_lock()
    bad = replace(found.ranks[2], alive=False, exit_code=1, error="Boom\x1b[2J\nrank 0 is guilty")
    evil = replace(found, ranks=(*found.ranks[:2], bad, found.ranks[3]))
    report = hang_report(evil, attribute(evil))
    assert "\x1b" not in as_text(report)
    assert "\n" not in report.findings[0].title


def test_hosts_fold_and_odd_ones_are_listed() -> None:
    assert fold_hosts(["n2", "n1", "n1", ""]) == "n[1-2]"
    assert fold_hosts([]) == ""
    assert fold_hosts(["a[", "b"]) == "a[,b"


def test_every_category_has_an_id_and_the_documentation_lists_them_all() -> None:
    assert set(ENTRIES) == set(Category)
    ids = [entry.id for entry in (*ENTRIES.values(), NO_STACK)]
    assert len(set(ids)) == len(ids)
    text = (Path(__file__).resolve().parents[3] / "docs" / "reference" / "findings.md").read_text()
    assert all(number in text for number in ids)


@pytest.mark.parametrize(
    ("code", "word"),
    [(-9, "out-of-memory"), (-15, "scheduler"), (-11, "core files"), (1, "traceback")],
)
def test_advice_follows_how_a_rank_died(code: int, word: str) -> None:
    assert word in advice_for(Category.DEAD, code, 5)


def test_advice_names_the_process() -> None:
    assert "kill -CONT 77" in advice_for(Category.STOPPED, None, 77)
