"""From a history to findings: ids, sentences, costs, exit codes, and what is not known."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from relkit.findings import Finding, Status
from relkit.output import as_json
from relkit.ranks import RankSet
from relkit.straggler.host_load import HostLoad
from relkit.straggler.model import PARTS, Cause, Subject, Verdict
from relkit.straggler.present.metrics import breakdown, metrics_of, share_lost, step_seconds
from relkit.straggler.present.report import advice, seconds, straggler_report, what
from relkit.straggler.present.summary import plain_summary, summarise
from relkit.straggler.transport.history import History, RaisedVerdict
from tests.reports.straggler_jobs import PAUSE_EVERY, PAUSE_S, SLOWNESS, STEP_S, job


def accused(cause: Cause, rank: int = 1, *, subject: Subject = Subject.RANK, ended: int = -1,
            ends: tuple[str, ...] = ()) -> RaisedVerdict:  # fmt: skip
    verdict = Verdict(subject, cause, 0.1, 0.9, 210, 1.0, ("why",), rank=rank, ends=ends)
    return RaisedVerdict(verdict, 215, ended)


@pytest.mark.parametrize(
    ("cause", "number", "status"),
    [
        (Cause.COMPUTE, "001", Status.FAIL),
        (Cause.NETWORK, "002", Status.FAIL),
        (Cause.INPUT, "003", Status.FAIL),
        (Cause.HOST, "004", Status.FAIL),
        (Cause.NOISE, "007", Status.WARN),
    ],
)
def test_each_cause_has_its_finding(cause: Cause, number: str, status: Status) -> None:
    history = replace(job(4, 40, slow=False), verdicts=(accused(cause),))
    finding = straggler_report(history).findings[0]
    assert finding.id == f"RK-STRAG-{number}"
    assert finding.status is status
    assert (finding.ranks, finding.nodes) == ("1", "node01")
    assert finding.title.startswith("rank 1 (node01) ")
    assert "since step 210" in finding.title
    assert finding.reasons == ("why",)
    assert finding.advice


@pytest.mark.parametrize(
    ("cause", "part", "now", "then"),
    [
        (Cause.COMPUTE, "", "computes 10 % longer than its peers", "computed"),
        (Cause.NETWORK, "", "takes 1.1 times as long as usual for a transfer", "took"),
        (Cause.INPUT, "", "needs 10 % longer than its peers, waiting for input", "needed"),
        (Cause.HOST, "gc", "needs 10 % longer than its peers, for garbage collection", "needed"),
        (Cause.HOST, "throttled",
         "needs 10 % longer than its peers, stopped by its cgroup's CPU limit", "needed"),
        (Cause.HOST, "",
         "needs 10 % longer than its peers, on its host, outside of compute and input", "needed"),
        (Cause.NOISE, "", "is 10 % slower than its peers, and nothing explains it", "was"),
    ],
)  # fmt: skip
def test_what_it_does_or_did(cause: Cause, part: str, now: str, then: str) -> None:
    verb = now.partition(" ")[0]
    assert what(accused(cause), part) == now
    assert what(accused(cause, ended=0), part) == now.replace(verb, then, 1)


def busy(waits: dict[int, float], load: HostLoad | None) -> Finding | None:
    """What is said of ranks of a healthy job on one host that wait for such shares of the time."""
    history = job(4, 100, slow=False)
    history = replace(history, hosts=("a",) * 4, loads={"a": load} if load is not None else {})
    row = history.parts[PARTS.index("run_queue_wait")]
    row[:] = 0.0
    for rank, share in waits.items():
        row[rank] = share * step_seconds(history)
    report = straggler_report(history)
    assert report.exit_code == 0
    assert {finding.id for finding in report.findings} <= {"RK-STRAG-005", "RK-STRAG-008"}
    return next((one for one in report.findings if one.id == "RK-STRAG-008"), None)


def test_ranks_that_wait_for_a_core_are_one_finding_of_their_host() -> None:
    finding = busy({0: 0.4, 1: 0.36}, HostLoad(2, 2.0, 0.5))
    assert finding is not None
    assert finding.title == (
        "ranks 0-1 (a) wait 38 % of the time for a CPU: other processes use it"
    )
    assert (finding.status, finding.ranks, finding.nodes) == (Status.WARN, "0-1", "a")
    assert "top" in finding.advice
    own = busy({2: 0.5}, HostLoad(2, 2.0, 1.9))
    assert own is not None
    assert own.title.endswith(
        "waits 50 % of the time for a CPU: the job needs more than the 2 cores of the host"
    )
    unknown = busy({2: 0.5}, None)
    assert unknown is not None
    assert unknown.title.endswith("for a CPU")
    assert busy({0: 0.09, 1: 0.09}, HostLoad(2, 2.0, 0.5)) is None


def test_what_is_not_sure_accuses_nobody() -> None:
    sure = accused(Cause.COMPUTE, ended=300)
    unsure = replace(sure, verdict=replace(sure.verdict, confidence=0.89))
    history = replace(job(4, 40, slow=False), past=(unsure, sure))
    assert history.accusations == (sure,)
    assert [one.id for one in straggler_report(history).findings].count("RK-STRAG-001") == 1


def test_exit_codes() -> None:
    assert straggler_report(job(8, 100)).exit_code == 1
    assert straggler_report(job(8, 100, slow=False)).exit_code == 0
    assert straggler_report(job(8, 10, slow=False)).exit_code == 3
    over = replace(job(8, 100, slow=False), past=(accused(Cause.INPUT, ended=220),))
    report = straggler_report(over)
    assert report.exit_code == 0
    assert "from step 210 to 220" in report.findings[0].title


def test_dropped_verdicts_of_a_kind_are_one_finding_and_noise_is_none() -> None:
    again = [accused(Cause.INPUT, ended=ended) for ended in (220, 230, 240)]
    noise = [accused(Cause.NOISE, ended=ended) for ended in (221, 222)]
    report = straggler_report(replace(job(8, 100, slow=False), past=(*again, *noise)))
    assert [f.id for f in report.findings] == ["RK-STRAG-003", "RK-STRAG-005"]
    assert "to 240;" in report.findings[0].title
    assert report.findings[0].reasons[-1] == "the same was reported 2 times before, 2 s lost in all"


def test_a_rank_of_which_nothing_is_known_is_not_healthy() -> None:
    healthy = job(8, 100, slow=False)
    own = healthy.local_s.copy()
    own[[2, 3]] = np.nan
    report = straggler_report(replace(healthy, local_s=own))
    assert report.exit_code == 3
    assert [f.ranks for f in report.findings if f.id == "RK-STRAG-010"] == ["2-3"]
    nothing = np.full_like(own, np.nan)
    assert (
        "no step of any rank"
        in straggler_report(replace(healthy, local_s=nothing)).findings[0].title
    )


def test_suspects_are_told_and_not_accused() -> None:
    history = job(8, 100, slow=False)
    evidence = history.evidence.copy()
    evidence[6] = 0.7
    report = straggler_report(replace(history, evidence=evidence))
    (suspect,) = [f for f in report.findings if f.id == "RK-STRAG-006"]
    assert suspect.ranks == "6"
    assert "70 % of the evidence" in suspect.reasons[0]
    assert report.exit_code == 0


def test_a_title_begins_a_long_list_of_ranks_and_the_finding_has_all_of_it() -> None:
    healthy = job(80, 100, slow=False)
    own, evidence = healthy.local_s.copy(), healthy.evidence.copy()
    own[::2], evidence[1::2] = np.nan, 0.7
    report = straggler_report(replace(healthy, local_s=own, evidence=evidence))
    unknown = next(f for f in report.findings if f.id == "RK-STRAG-010")
    suspects = next(f for f in report.findings if f.id == "RK-STRAG-006")
    assert unknown.title == "nothing is known of ranks 0,2,4,…,78 (40 ranks)"
    assert suspects.title.startswith("ranks 1,3,5,…,79 (40 ranks) suspected")
    assert RankSet.unfold(unknown.ranks) == RankSet.of(range(0, 80, 2))
    assert RankSet.unfold(suspects.ranks) == RankSet.of(range(1, 80, 2))


def test_links_and_hosts_are_named() -> None:
    history = job(8, 100, slow=False)
    link = accused(Cause.NETWORK, -1, subject=Subject.LINK, ends=("node01", "node03"))
    host = accused(Cause.NETWORK, -1, subject=Subject.HOST, ends=("node02",))
    titles = [f.title for f in straggler_report(replace(history, verdicts=(link, host))).findings]
    assert titles[0].startswith("the link node01 → node03 takes 1.1 times as long as usual")
    assert titles[1].startswith("the network of node02 takes")


def test_the_json_has_the_keys_that_were_promised() -> None:
    document = json.loads(as_json(straggler_report(job(8, 200))))
    assert document["schema"] == "relkit.straggler/1"
    first = document["stragglers"][0]
    assert first["rank"] == 5
    assert first["cause"] == "slow-compute"
    assert {"score", "confidence", "first_step", "cost_s", "host", "ends", "reasons"} <= set(first)
    assert document["stragglers"][1]["rank"] is None
    assert document["stragglers"][1]["ends"] == ["node02", "node03"]
    assert document["clock_offsets"]["node01"]["offset_s"] == 0.0


def test_the_excess_is_the_injected_one() -> None:
    history = job(8, 400)
    slowdown = metrics_of(history).slowdown
    assert np.mean(slowdown[5, 120:]) == pytest.approx(SLOWNESS, rel=0.1)
    assert abs(np.mean(slowdown[5, :120])) < 0.01
    assert abs(np.mean(slowdown[7])) < 0.01


def test_two_ranks_are_held_against_each_other_not_against_their_middle() -> None:
    history = job(2, 100, slow=False)
    own = np.full((2, 100), 0.1, np.float32)
    own[1] = 0.15
    assert np.median(metrics_of(replace(history, local_s=own)).slowdown[1]) == pytest.approx(0.5)


def test_ranks_of_different_work_are_not_compared() -> None:
    history = job(4, 100, slow=False)
    own = np.full((4, 100), 0.1, np.float32)
    own[2:] = 0.2
    peers = np.array([0, 0, 1, 1], np.int32)
    assert np.abs(metrics_of(replace(history, local_s=own, peers=peers)).slowdown).max() < 1e-6


def test_a_rank_without_peers_is_held_against_its_own_past() -> None:
    own = np.full((4, 100), 0.1, np.float32)
    own[0, 90:] = 0.2
    alone = replace(job(4, 100, slow=False), local_s=own, peers=np.arange(4, dtype=np.int32))
    assert metrics_of(alone).slowdown[0, [50, 95]] == pytest.approx([0.0, 1.0])


def test_the_breakdown_has_the_injected_pauses() -> None:
    found = breakdown(job(8, 400), 2)
    assert found is not None
    assert found.more_s("gc") == pytest.approx(PAUSE_S / PAUSE_EVERY, rel=0.15)
    assert len(found.mine_s) == len(PARTS)
    assert breakdown(job(8, 400), 7) is None


def test_the_breakdown_has_each_second_in_one_part() -> None:
    """The kernel counts the time that a cgroup stops a thread as waiting for a core, too."""
    history = job(8, 400)
    history.parts[PARTS.index("run_queue_wait"), 2] = 0.03
    history.parts[PARTS.index("throttled"), 2] = 0.02
    times = breakdown(history, 2)
    assert times is not None
    assert times.mine_s[PARTS.index("run_queue_wait")] == pytest.approx(0.01)
    assert times.mine_s[PARTS.index("throttled")] == pytest.approx(0.02)


@pytest.mark.parametrize(
    ("part", "words"), [("gc", "gc.freeze()"), ("throttled", "cpu.max"), ("", "vmstat 1")]
)
def test_what_to_do_about_a_host_depends_on_what_takes_the_time(part: str, words: str) -> None:
    assert words in advice(Cause.HOST, Subject.RANK, part)


def test_the_share_is_of_the_time_since() -> None:
    history = job(8, 400)
    step_s = step_seconds(history)
    assert step_s > STEP_S
    compute = history.verdicts[0]
    spent_s = (599 - compute.verdict.first_step + 1) * step_s
    assert share_lost(history, compute) == pytest.approx(compute.verdict.cost_s / spent_s)
    blind = replace(
        history, step_unix_s=np.full(400, np.nan), local_s=np.full_like(history.local_s, np.nan)
    )
    assert math.isnan(share_lost(blind, compute))


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0 ms"), (0.085, "85 ms"), (0.5, "0.5 s"), (3.21, "3.21 s"), (600, "10 min"),
     (18360, "5.1 h"), (math.nan, "?"), (math.inf, "?"), (36e6, "10,000 h")],
)  # fmt: skip
def test_times_for_people(value: float, text: str) -> None:
    assert seconds(value) == text


def test_the_summary_has_the_accused_first_and_folds_the_rest() -> None:
    found = summarise(job(1024, 100))
    assert {one.rank for one in found.ranks[:2]} == {640, 129}
    assert len(found.ranks) == 15
    assert len(found.others) == 1009
    assert "slow compute since step 230" in {one.state for one in found.ranks}
    assert found.links[0].ratio == 4.1
    # Whatever the evidence is by now.
    healthy = replace(job(1024, 100, slow=False), verdicts=(accused(Cause.COMPUTE, 700),))
    assert summarise(healthy).ranks[0].rank == 700
    small = summarise(job(8, 100))
    assert not small.others
    assert math.isnan(small.others_score)


def test_the_summary_is_plain_json_even_where_nothing_is_known() -> None:
    blind: History = replace(
        job(8, 60, slow=False),
        local_s=np.full((8, 60), np.nan, np.float32),
        step_unix_s=np.full(60, np.nan),
        scores=np.full(8, np.nan, np.float32),
    )
    line = json.dumps(plain_summary(blind), allow_nan=False)
    assert json.loads(line)["ranks"][0]["score"] is None
