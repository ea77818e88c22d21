"""From the records of nodes to verdicts and a history, however the records arrive."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from relkit.straggler.model import PARTS, Cause, Subject, Verdict
from relkit.straggler.score.align import PATIENCE_S, Aligner
from relkit.straggler.score.host_clocks import HostClocks
from relkit.straggler.score.links import LinkScorer, Transfer
from relkit.straggler.score.matched_collectives import (
    Groups,
    lateness,
    match_collectives,
    on_one_clock,
    transfers,
)
from relkit.straggler.score.online_scorer import OnlineScorer, PeerGroups
from relkit.straggler.score.rank_scorer import Settings
from relkit.straggler.score.ring_buffer import StepRingBuffer
from relkit.straggler.step_record import StepRecord
from tests.unit.straggler.step_records import records

RANKS = 8


def in_order(found: list[StepRecord]) -> list[list[StepRecord]]:
    """By step."""
    by_step: dict[int, list[StepRecord]] = {}
    for one in found:
        by_step.setdefault(one.step, []).append(one)
    return list(by_step.values())


def test_a_slow_rank_is_raised_with_its_steps_and_shows_in_the_history() -> None:
    scorer = OnlineScorer("j", RANKS)
    began = []
    for now, batch in enumerate(in_order(records(range(80), RANKS, slow={3: 0.1}, onset=30))):
        began += [c for c in scorer.update(batch, float(now)) if c.holds]
    assert [c.verdict.rank for c in began] == [3]
    assert began[0].verdict.cause is Cause.COMPUTE
    assert 28 <= began[0].verdict.first_step <= 34
    assert 30 <= began[0].raised_step <= 60
    history = scorer.history(["n"], ended=True)
    assert (history.steps, history.first_step, history.world_size) == (80, 0, RANKS)
    assert [r.verdict.rank for r in history.verdicts] == [3]
    assert np.nanmedian(history.local_s[3, 40:] / history.local_s[0, 40:]) == pytest.approx(
        1.1, 0.02
    )
    assert np.nanmedian(history.late_s[3, 40:]) > 0.003
    assert history.notes == ("n",)


def test_healthy_ranks_are_left_alone_and_a_fault_that_ends_is_dropped() -> None:
    healthy = OnlineScorer("j", RANKS)
    for now, batch in enumerate(in_order(records(range(200), RANKS, seed=3))):
        assert healthy.update(batch, float(now)) == []
    scorer = OnlineScorer("j", 4)
    changes = []
    ill = records(range(60), 4, slow={1: 0.3}, onset=10)
    well = [replace(one, step=one.step + 60) for one in records(range(100), 4, seed=5)]
    for now, batch in enumerate(in_order(ill + well)):
        changes += scorer.update(batch, float(now))
    assert [(c.holds, c.verdict.rank) for c in changes] == [(True, 1), (False, 1)]
    history = scorer.history()
    assert history.verdicts == ()
    assert history.past[0].ended_step > 60


def test_a_suspicion_that_comes_to_nothing_is_kept_and_said_to_nobody() -> None:
    scorer = OnlineScorer("j", 4)
    ill = records(range(24), 4, slow={2: 0.1}, onset=21)
    well = [replace(one, step=one.step + 24) for one in records(range(40), 4, seed=5)]
    for now, batch in enumerate(in_order(ill + well)):
        assert scorer.update(batch, float(now)) == []
    history = scorer.history()
    assert [(one.verdict.rank, one.verdict.cause) for one in history.past] == [(2, Cause.NOISE)]
    assert history.accusations == ()


def test_the_order_in_which_nodes_report_changes_nothing() -> None:
    found = records(range(50), RANKS, slow={5: 0.2}, onset=15)
    plain, shuffled = OnlineScorer("j", RANKS), OnlineScorer("j", RANKS)
    for batch in in_order(found):
        plain.update(batch, 0.0)
    queues = [[one for one in found if one.rank % 3 == node] for node in range(3)]
    rng = random.Random(1)  # noqa: S311
    while any(queues):
        queue = rng.choice([queue for queue in queues if queue])
        take = rng.randint(1, 12)
        shuffled.update(queue[:take], 0.0)
        del queue[:take]
    one, other = plain.history(), shuffled.history()
    assert one.steps == other.steps
    np.testing.assert_array_equal(one.local_s, other.local_s)
    np.testing.assert_array_equal(one.late_s, other.late_s)
    assert [v.raised_step for v in one.verdicts] == [v.raised_step for v in other.verdicts]


def test_a_rank_that_does_not_report_is_waited_for_and_then_left_out() -> None:
    aligner = Aligner(4)
    found = records(range(5), 4)
    aligner.add([one for one in found if one.step < 2], 0.0)
    assert [step.step for step in aligner.take(0.0)] == [0, 1]
    aligner.add([one for one in found if one.step >= 2 and one.rank != 2], 1.0)
    assert aligner.take(1.0 + 0.9 * PATIENCE_S) == []
    late = aligner.take(1.0 + PATIENCE_S)
    assert [step.step for step in late] == [2, 3, 4]
    assert [one.rank for one in late[0].records] == [0, 1, 3]
    # What comes later still is too late for those steps.
    aligner.add([one for one in found if one.step >= 2 and one.rank == 2], 5.0)
    assert aligner.take(50.0) == []


def test_kinds_of_ranks_are_put_together_by_time() -> None:
    found = [
        replace(one, peers_key="odd", step=one.step + 100) if one.rank % 2 else one
        for one in records(range(10), 4)
    ]
    aligner = Aligner(4)
    aligner.add(found, 0.0)
    steps = aligner.take(0.0)
    assert [len(step.records) for step in steps] == [4] * 10
    assert [len({one.end_ns // 10**8 for one in step.records}) for step in steps] == [1] * 10


def test_evidence_is_kept_while_ranks_stay_divided_as_before() -> None:
    kinds = PeerGroups(4)
    assert kinds.update(records([0], 4))
    assert kinds.by_rank == (0, 0, 0, 0)
    other = [replace(one, peers_key="other") for one in records([0], 4)]
    assert not kinds.update(other)
    # On the way there some ranks are not seen in some steps.
    assert not kinds.update(other[:2])
    assert not kinds.update(records([0], 4)[2:])
    split = [replace(one, peers_key=f"stage {one.rank // 2}") for one in other]
    assert kinds.update(split)
    assert kinds.by_rank == (0, 0, 1, 1)
    assert not kinds.update([replace(one, peers_key=one.peers_key + "'") for one in split])
    # Who has no peers is held against its own past, which ends with what it does.
    alone = PeerGroups(3)
    pair = [replace(one, peers_key="x" if one.rank else "y") for one in records([0], 3)]
    assert alone.update(pair)
    assert alone.by_rank == (0, 1, 1)
    assert alone.update([replace(one, peers_key=one.peers_key + "'") for one in pair])


def test_numbers_grow_also_where_a_job_begins_anew() -> None:
    aligner = Aligner(2)
    aligner.add(records(range(5), 2), 0.0)
    first = [step.step for step in aligner.take(0.0)]
    aligner.add([replace(one, peers_key="other") for one in records(range(5), 2)], 0.0)
    second = [step.step for step in aligner.take(0.0)]
    assert first == [0, 1, 2, 3, 4]
    assert second == [5, 6, 7, 8, 9]


def test_clocks_that_differ_make_nobody_late() -> None:
    hosts = ["a", "a", "b", "b"]
    found = records(range(40), 4, slow={2: 0.2}, host_of=hosts, offset_s={"b": 3.7})
    clocks, groups = HostClocks(), Groups()
    for batch in in_order(found):
        clocks.update(match_collectives(batch, groups), hosts)
    assert clocks.offset_s(hosts)[2] == pytest.approx(3.7, abs=1e-4)
    seen = on_one_clock(match_collectives(in_order(found)[-1]), clocks.offset_s(hosts))
    late_s = lateness(seen, 4)
    assert int(np.argmax(late_s)) == 2
    assert late_s[2] == pytest.approx(0.02, abs=0.008)  # 10 ms in each of two collectives
    (moved,) = transfers(seen, hosts)
    assert moved.hosts == ("a", "b")
    assert moved.seconds == pytest.approx(0.002, abs=3e-4)
    assert set(clocks.table()) == {"a", "b"}


def test_hosts_that_never_meet_are_put_on_one_clock_through_others() -> None:
    ahead_s = {"a": 0.0, "b": 2.5, "c": -4.0, "d": 1.25, "e": 9.0, "f": 8.0}
    hosts = list(ahead_s)
    # a-b, b-c and c-d are groups of two; e and f only know each other.
    pairs = [(0, 1), (1, 2), (2, 3), (4, 5)]
    clocks, groups = HostClocks(), Groups()
    for step in range(20):
        batch: list[StepRecord] = []
        for number, pair in enumerate(pairs):
            names = [hosts[rank] for rank in pair]
            talk = records([step], 2, host_of=names, offset_s=ahead_s, seed=number)
            for place, one in enumerate(talk):
                table = one.collectives.copy()
                # A group's place in the list of each rank.
                batch.append(replace(
                    one, rank=pair[place], collectives=table,
                    groups=((f"g{number}", 2, place),),
                ))  # fmt: skip
        # One record a rank: those of two groups are joined.
        clocks.update(match_collectives(joined(batch), groups), hosts)
    offset_s = clocks.offset_s(hosts)
    assert offset_s[:4].tolist() == pytest.approx([0.0, 2.5, -4.0, 1.25], abs=1e-4)
    assert offset_s[5] - offset_s[4] == pytest.approx(-1.0, abs=1e-4)
    assert set(clocks.table()) == {"a", "b", "c", "d"}
    assert all(sigma_s < 1e-3 for _, sigma_s in clocks.table().values())


def joined(batch: list[StepRecord]) -> list[StepRecord]:
    """Several records of a rank as one with several groups."""
    found = []
    for rank in sorted({one.rank for one in batch}):
        mine = [one for one in batch if one.rank == rank]
        tables = [one.collectives.copy() for one in mine]
        for place, table in enumerate(tables):
            table["communicator"] = place
        groups = tuple(group for one in mine for group in one.groups)
        found.append(replace(mine[0], collectives=np.concatenate(tables), groups=groups))
    return found


def test_a_collective_that_somebody_has_not_reported_says_nothing_of_who_was_late() -> None:
    found = [one for one in records([0], 4) if one.rank != 1]
    assert np.isnan(lateness(match_collectives(found), 4)).all()
    assert transfers(match_collectives(found), ["a"] * 4) == []
    assert len(match_collectives([]).first) == 0


@pytest.mark.parametrize(
    ("lost_s", "confidence", "raised"),
    [(0.06, 0.9, True), (0.06, 0.89, False), (0.002, 1.0, False)],
)
def test_a_link_is_said_only_if_that_is_sure_and_the_job_loses_by_it(
    monkeypatch: pytest.MonkeyPatch, lost_s: float, confidence: float, raised: bool
) -> None:
    def slow(_links: LinkScorer, step: int, _transfers: Sequence[Transfer]) -> tuple[Verdict, ...]:
        cost_s = lost_s * max(0, step - 29)
        verdict = Verdict(
            Subject.LINK, Cause.NETWORK, 1.0, confidence, 30, cost_s, (), ends=("a", "b")
        )
        return (verdict,) if step >= 30 else ()

    monkeypatch.setattr(LinkScorer, "update", slow)
    scorer = OnlineScorer("j", 4)
    began = []
    for now, batch in enumerate(in_order(records(range(80), 4, host_of=["a", "b", "c", "d"]))):
        began += [c for c in scorer.update(batch, float(now)) if c.holds]
    assert [c.verdict.ends for c in began] == [("a", "b")] * raised


def judged_steps(found: list[StepRecord]) -> list[int]:
    """The steps after which somebody was said to be slow for the first time."""
    scorer = OnlineScorer("j", 4)
    changes = []
    for now, batch in enumerate(in_order(found)):
        changes += scorer.update(batch, float(now))
    return [change.raised_step for change in changes if change.holds]


def test_a_jobs_first_steps_and_its_last_second_are_not_judged() -> None:
    # Steps of 0.1 s: a fault that lasts for the first second is over when judging begins.
    early = records(range(10), 4, slow={1: 1.0})
    later = [replace(one, step=one.step + 10) for one in records(range(40), 4)]
    assert judged_steps(early + later) == []
    # Ten steps are more than a plain fault takes; they are the last ones.
    assert judged_steps(records(range(50), 4, slow={1: 0.3}, onset=40)) == []
    assert judged_steps(records(range(65), 4, slow={1: 0.3}, onset=40)) != []
    # They are in the history all the same.
    scorer = OnlineScorer("j", 4)
    scorer.update(records(range(50), 4), 0.0)
    assert scorer.history().steps == 50


def test_a_long_save_at_the_end_is_nobodys_fault() -> None:
    found = records(range(50), 4, slow={0: 30.0}, onset=49)
    assert judged_steps(found) == []


def test_two_ranks_that_are_slow_because_of_their_host_are_one_verdict_on_it() -> None:
    hosts = ["a", "a", "a", "b", "b", "b", "b"]
    found = [
        replace(one, parts=one.parts._replace(gc_s=0.03)) if one.rank in (0, 1) else one
        for one in records(range(80), 7, slow={0: 0.3, 1: 0.3}, onset=20, host_of=hosts)
    ]
    scorer = OnlineScorer("j", 7)
    changes = []
    for now, batch in enumerate(in_order(found)):
        changes += scorer.update(batch, float(now))
    (held,) = scorer.holding
    assert (held.verdict.subject, held.verdict.cause) == (Subject.HOST, Cause.HOST)
    assert held.verdict.ends == ("a",)
    assert "ranks 0-1 of it" in held.verdict.reasons[0]
    # Nobody is said to have recovered who is only called by another name.
    assert all(change.holds for change in changes)


def test_other_limits_take_hold_at_once() -> None:
    scorer = OnlineScorer("j", 4, Settings(min_slowdown=0.5))
    changes = []
    batches = in_order(records(range(120), 4, slow={0: 0.15}))
    for now, batch in enumerate(batches[:60]):
        changes += scorer.update(batch, float(now))
    assert changes == []
    scorer.retune(Settings(min_slowdown=0.04))
    for now, batch in enumerate(batches[60:]):
        changes += scorer.update(batch, 60.0 + now)
    assert [c.verdict.rank for c in changes] == [0]
    assert scorer.history().settings["min_slowdown"] == 0.04


def test_a_window_keeps_the_newest_and_shows_what_was_left_out() -> None:
    window = StepRingBuffer(2)
    parts = np.ones((len(PARTS), 2))
    for step in (0, 1, 5, 6):
        window.add(step, parts * step, np.zeros(2), float(step))
    own, late, _, unix = window.columns()
    assert (window.first_step, window.steps) == (0, 7)
    assert np.isnan(own[0, 2:5]).all()
    assert own[0, [0, 1, 5, 6]].tolist() == [0.0, 3.0, 15.0, 18.0]
    assert late.shape == (2, 7)
    assert unix[6] == 6.0
    for step in range(7, 5000):
        window.add(step, parts, np.zeros(2), 0.0)
    assert window.steps == 2000
    assert window.first_step == 3000
