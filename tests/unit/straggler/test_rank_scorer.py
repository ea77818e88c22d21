"""Who is accused, since when, and why: fixed draws, so that noise cannot break a test."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relkit.straggler.model import PARTS, Cause, Floats, Verdict
from relkit.straggler.score.peers import Peers
from relkit.straggler.score.rank_scorer import RankScorer, Settings
from relkit.straggler.step_record import StepTable

COMPUTE, INPUT, UNATTRIBUTED, GC, RUN_QUEUE_WAIT, THROTTLED, OFF_CPU, EXCUSED = range(len(PARTS))
Change = Callable[[int, Floats], None]


def _run(
    positions: list[int],
    change: Change,
    *,
    steps: int = 60,
    sigma: float = 0.02,
    seed: int = 5,
    with_lateness: bool = True,
) -> list[tuple[Verdict, ...]]:
    rng = np.random.default_rng(seed)
    scorer = RankScorer(positions)
    said = []
    for step in range(steps):
        parts = np.zeros((len(PARTS), len(positions)))
        parts[:3] = np.array([0.08, 0.005, 0.015])[:, None]
        parts[:3] *= 1.0 + sigma * rng.standard_normal(len(positions))
        parts[OFF_CPU] = np.nan
        change(step, parts)
        own = parts[:3].sum(axis=0)
        late = own - np.median(own) if with_lateness else np.full(len(positions), np.nan)
        said.append(_accused(scorer.update([StepTable(step, parts, late)])[0]))
    return said


def _accused(verdicts: tuple[Verdict, ...]) -> tuple[Verdict, ...]:
    return tuple(verdict for verdict in verdicts if verdict.cause is not Cause.NOISE)


def _from(step: int, rank: int, row: int, seconds: float, *also: int) -> Change:
    def change(now: int, parts: Floats) -> None:
        if now >= step:
            parts[(row, *also), rank] += seconds

    return change


def _healthy(step: int, parts: Floats) -> None:
    pass


@pytest.mark.parametrize("ranks", [2, 8, 64])
def test_a_healthy_job_is_left_alone(ranks: int) -> None:
    assert not any(_run([0] * ranks, _healthy, steps=400))


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (_from(20, 1, COMPUTE, 0.01), Cause.COMPUTE),
        (_from(20, 1, INPUT, 0.01), Cause.INPUT),
        (_from(20, 1, UNATTRIBUTED, 0.01), Cause.HOST),
        (_from(20, 1, UNATTRIBUTED, 0.02, GC), Cause.HOST),
        (_from(20, 1, COMPUTE, 0.02, THROTTLED), Cause.HOST),
    ],
)
@pytest.mark.parametrize("ranks", [2, 8])
def test_ten_percent_is_found_within_thirty_steps(change: Change, cause: Cause, ranks: int) -> None:
    said = _run([0] * ranks, change)
    assert not any(said[:20])
    (verdict,) = said[49]
    assert (verdict.rank, verdict.cause) == (1, cause)
    assert 17 <= verdict.first_step <= 24
    assert verdict.accuses
    assert verdict.cost_s > 0.1


@pytest.mark.parametrize("slower", [0.2, 0.4])
def test_a_fault_begins_in_its_first_step_though_noise_came_before_it(slower: float) -> None:
    """Five steps of little noise are evidence to the test for 5 %, and no part of such a fault."""
    before = {15: 0.06, 16: 0.03, 17: 0.05, 18: 0.03, 19: 0.04}

    def change(step: int, parts: Floats) -> None:
        parts[COMPUTE, 1] += 0.1 * (slower if step >= 20 else before.get(step, 0.0))

    (verdict,) = _run([0] * 4, change)[30]
    assert (verdict.rank, verdict.first_step) == (1, 20)


def test_positions_with_more_work_are_not_slow() -> None:
    def last_stage_works_more(step: int, parts: Floats) -> None:
        parts[COMPUTE, 4:] *= 1.5

    assert not any(_run([0] * 4 + [1] * 4, last_stage_works_more))


def test_pauses_now_and_then_are_the_host() -> None:
    def collects(step: int, parts: Floats) -> None:
        if step >= 15 and step % 4 == 0:
            parts[(UNATTRIBUTED, GC), 3] += 0.2

    said = _run([0] * 4, collects, sigma=0.05)
    assert not any(said[:15])
    (verdict,) = said[45]
    assert (verdict.rank, verdict.cause) == (3, Cause.HOST)
    assert "garbage collection" in " ".join(verdict.reasons)


def test_one_long_pause_is_no_straggler() -> None:
    def once(step: int, parts: Floats) -> None:
        if step == 20:
            parts[UNATTRIBUTED, 1] += 5.0

    assert not any(_run([0] * 4, once))


def test_what_everybody_suffers_accuses_nobody() -> None:
    def all_slow(step: int, parts: Floats) -> None:
        if step >= 20:
            parts[COMPUTE] *= 1.5

    assert not any(_run([0] * 4, all_slow))


def test_an_accusation_is_dropped_when_the_slowness_has_gone() -> None:
    def passing(step: int, parts: Floats) -> None:
        if 20 <= step < 60:
            parts[COMPUTE, 1] *= 1.3

    said = _run([0] * 4, passing, steps=120)
    assert said[50]
    assert not said[119]
    assert all(said[step] for step in range(40, 60))


def test_who_is_slow_and_never_late_costs_nothing() -> None:
    rng = np.random.default_rng(1)
    scorer = RankScorer([0] * 4)
    for step in range(60):
        parts = np.zeros((len(PARTS), 4))
        parts[COMPUTE] = 0.1 * (1.0 + 0.01 * rng.standard_normal(4))
        parts[COMPUTE, 2] *= 1.2
        table = StepTable(step, parts, np.array([0.02, 0.02, -0.05, 0.02]))
        assert not _accused(scorer.update([table])[0])


def test_without_arrivals_the_own_time_suffices() -> None:
    said = _run([0] * 4, _from(20, 1, COMPUTE, 0.02), with_lateness=False)
    assert [verdict.rank for verdict in said[-1]] == [1]


def test_a_rank_without_peers_is_held_against_its_own_past() -> None:
    said = _run([0, 1, 2, 3], _from(20, 1, COMPUTE, 0.02))
    (verdict,) = said[49]
    assert verdict.rank == 1
    assert "its own past" in verdict.reasons[0]
    # It may only have got more to do.
    assert not verdict.accuses


def test_a_slow_rank_that_waits_for_its_core_in_proportion_is_slow_itself() -> None:
    def more_work_on_shared_cores(step: int, parts: Floats) -> None:
        parts[COMPUTE] *= 2.0
        parts[RUN_QUEUE_WAIT] = 0.5 * parts[COMPUTE]
        parts[:, 2] *= 1.5

    (verdict,) = _run([0] * 4, more_work_on_shared_cores)[-1]
    assert (verdict.rank, verdict.cause) == (2, Cause.COMPUTE)


def test_ranks_that_are_not_known_accuse_nobody() -> None:
    def gone(step: int, parts: Floats) -> None:
        parts[:, 3] = np.nan
        if step % 2:
            parts[:, 0] = np.nan

    assert not any(_run([0] * 6, gone, with_lateness=False))


def test_evidence_takes_more_in_a_larger_job() -> None:
    assert Settings().limit(1024) > Settings().limit(2) + 5.0


def test_median_of_others_leaves_oneself_out() -> None:
    values = np.array([[1.0, 9.0, 2.0, np.nan, 5.0, 7.0]])
    found = Peers([0, 0, 0, 0, 1, 2]).median_of_others(values)
    assert found[0, :4] == pytest.approx([5.5, 1.5, 5.0, 2.0])
    assert np.isnan(found[0, 4:]).all()


def test_median_of_others_agrees_with_numpy() -> None:
    rng = np.random.default_rng(8)
    values = rng.standard_normal((3, 17))
    found = Peers([rank % 3 for rank in range(17)]).median_of_others(values)
    for rank in range(17):
        others = [r for r in range(17) if r % 3 == rank % 3 and r != rank]
        assert found[:, rank] == pytest.approx(np.median(values[:, others], axis=1))


def test_sleep_tells_slow_input_from_slow_compute() -> None:
    def sleeps(usually_s: float) -> Change:
        def change(step: int, parts: Floats) -> None:
            parts[UNATTRIBUTED] += parts[COMPUTE]
            parts[COMPUTE] = 0.0
            parts[OFF_CPU] = usually_s
            if step >= 20:
                parts[(UNATTRIBUTED, OFF_CPU), 1] += 0.01

        return change

    (computes,) = _run([0] * 4, sleeps(0.0))[49]
    assert (computes.rank, computes.cause) == (1, Cause.INPUT)
    # Nothing says that it was data that the thread slept for.
    assert not computes.accuses
    # Ranks that sleep most of a step wait for a device: it is the device that is slow.
    (waits,) = _run([0] * 4, sleeps(0.07))[49]
    assert (waits.rank, waits.cause) == (1, Cause.COMPUTE)
    assert waits.accuses


def test_running_longer_without_sleeping_is_slow_compute() -> None:
    def runs(step: int, parts: Floats) -> None:
        parts[OFF_CPU] = 0.001
        if step >= 20:
            parts[UNATTRIBUTED, 1] += 0.01

    (verdict,) = _run([0] * 4, runs)[49]
    assert (verdict.rank, verdict.cause) == (1, Cause.COMPUTE)
    assert "running" in " ".join(verdict.reasons)


def test_throttling_counts_once_though_the_kernel_counts_it_as_starvation_too() -> None:
    def throttled(step: int, parts: Floats) -> None:
        if step >= 20:
            parts[(COMPUTE, RUN_QUEUE_WAIT, THROTTLED), 1] += 0.01

    (verdict,) = _run([0] * 4, throttled)[49]
    assert verdict.cause is Cause.HOST
    assert "throttling" in " ".join(verdict.reasons)
    assert "core" not in " ".join(verdict.reasons)


def test_starvation_that_wanders_is_not_raised_and_does_not_hide_slow_compute() -> None:
    rng = np.random.default_rng(11)
    share = np.repeat(rng.uniform(0.0, 0.12, (20, 2)), 15, axis=0)

    def wanders(step: int, parts: Floats) -> None:
        taken = 0.1 * share[step]
        parts[UNATTRIBUTED] += taken
        parts[RUN_QUEUE_WAIT] += taken

    def slow_too(step: int, parts: Floats) -> None:
        wanders(step, parts)
        if step >= 40:
            parts[COMPUTE, 1] += 0.01

    assert not any(_run([0, 0], wanders, steps=300))
    said = _run([0, 0], slow_too, steps=75)
    assert not any(said[:40])
    assert [(one.rank, one.cause) for one in said[69]] == [(1, Cause.COMPUTE)]


@pytest.mark.parametrize("ranks", [2, 4, 64])
def test_a_fault_that_begins_with_the_job_is_found(ranks: int) -> None:
    said = _run([0] * ranks, _from(0, 1, COMPUTE, 0.01))
    (verdict,) = said[29]
    assert (verdict.rank, verdict.cause) == (1, Cause.COMPUTE)
    assert verdict.first_step <= 5


def test_a_fault_is_raised_once_and_dropped_once() -> None:
    def passing(step: int, parts: Floats) -> None:
        if 40 <= step < 90:
            parts[COMPUTE, 1] += 0.012

    for seed in range(5):
        said = [bool(one) for one in _run([0] * 4, passing, steps=200, sigma=0.04, seed=seed)]
        assert sum(before != after for before, after in pairwise(said)) == 2


def test_a_suspicion_that_ends_is_called_noise() -> None:
    rng, scorer = np.random.default_rng(2), RankScorer([0] * 4)
    dismissed: list[Verdict] = []
    for step in range(60):
        parts = np.zeros((len(PARTS), 4))
        parts[COMPUTE] = 0.1 * (1.0 + 0.02 * rng.standard_normal(4))
        parts[COMPUTE, 2] += 0.01 if 20 <= step < 24 else 0.0
        (judged,) = scorer.update([StepTable(step, parts, np.full(4, np.nan))])
        assert not _accused(judged)
        dismissed += judged
    (verdict,) = dismissed
    assert (verdict.rank, verdict.cause) == (2, Cause.NOISE)
    assert 20 <= verdict.first_step <= 25


def test_moments_without_a_core_accuse_nobody() -> None:
    """Drawn after what a launcher on the same core does to a pinned rank."""

    def taken(step: int, parts: Floats) -> None:
        lost_s = 0.05 if step in (4, 9, 10, 21) else 0.001
        parts[(UNATTRIBUTED, RUN_QUEUE_WAIT), 0] += lost_s

    assert not any(_run([0, 0], taken, sigma=0.005, steps=40))


@pytest.mark.parametrize("row", [COMPUTE, INPUT, UNATTRIBUTED])
@pytest.mark.parametrize("ranks", [2, 8])
def test_a_rank_that_only_waits_for_a_core_is_not_slow(row: int, ranks: int) -> None:
    """Others have the core: that is the host's, and no rank's."""

    def starves(step: int, parts: Floats) -> None:
        if step >= 20:
            parts[(row, RUN_QUEUE_WAIT), 0] += 0.05

    assert not any(_run([0] * ranks, starves, sigma=0.005, steps=200))


def test_a_rank_that_is_taken_from_its_core_all_the_time_may_run_a_little_longer() -> None:
    """Drawn after a rank at load 8: its caches are cold each time it runs again."""

    def starves(longer_s: float) -> Change:
        def change(step: int, parts: Floats) -> None:
            parts[(UNATTRIBUTED, RUN_QUEUE_WAIT), 0] += 0.06
            parts[UNATTRIBUTED, 0] += longer_s
            parts[OFF_CPU] = 0.0

        return change

    assert not any(_run([0, 0], starves(0.006)))
    (verdict,) = _run([0, 0], starves(0.03))[-1]
    assert (verdict.rank, verdict.cause) == (0, Cause.COMPUTE)


@pytest.mark.parametrize("ranks", [2, 4])
def test_where_all_wait_for_cores_only_a_tenth_more_is_a_slow_rank(ranks: int) -> None:
    """Healthy ranks beside five busy loops differed by 5 and 6 % of a step for 60 and 305."""

    def busy(longer_s: float) -> Change:
        def change(step: int, parts: Floats) -> None:
            parts[(UNATTRIBUTED, RUN_QUEUE_WAIT), :] += 0.2
            parts[OFF_CPU] = 0.0
            if step >= 20:
                parts[COMPUTE, 0] += longer_s

        return change

    assert not any(_run([0] * ranks, busy(0.02), sigma=0.005, steps=200))
    (verdict,) = _run([0] * ranks, busy(0.04), sigma=0.005, steps=200)[-1]
    assert (verdict.rank, verdict.cause) == (0, Cause.COMPUTE)


@pytest.mark.parametrize("every", [2, 3, 5, 20])
@pytest.mark.parametrize("sigma", [0.005, 0.05])
def test_a_rank_that_saves_now_and_then_is_not_slow(every: int, sigma: float) -> None:
    def saves(step: int, parts: Floats) -> None:
        parts[OFF_CPU] = 0.001
        if step % every == 0:
            parts[(UNATTRIBUTED, OFF_CPU), 0] += 1.0

    assert not any(_run([0, 0], saves, sigma=sigma, steps=300))


def test_a_rank_that_saves_in_every_step_is_excused_and_slow_only_by_more_than_that() -> None:
    def saves(longer_s: float) -> Change:
        def change(step: int, parts: Floats) -> None:
            parts[(UNATTRIBUTED, EXCUSED), 0] += 0.1
            parts[COMPUTE, 0] += longer_s

        return change

    assert not any(_run([0, 0], saves(0.0), steps=200))
    assert [one.rank for one in _run([0, 0], saves(0.03))[-1]] == [0]


def test_what_excuses_all_ranks_alike_excuses_none() -> None:
    def change(step: int, parts: Floats) -> None:
        parts[EXCUSED] = 0.1
        parts[COMPUTE, 1] += 0.01

    assert [one.rank for one in _run([0] * 4, change)[-1]] == [1]


def test_an_accused_rank_that_is_no_slower_is_dropped_before_it_is_called_noise() -> None:
    def two_of_them(step: int, parts: Floats) -> None:
        if 5 <= step < 20:
            parts[COMPUTE, 0] += 0.01
        if step >= 20:
            parts[COMPUTE, 1] += 0.06

    said = _run([0, 0], two_of_them)
    assert [one.rank for one in said[19]] == [0]
    assert {one.cause for step in said for one in step} == {Cause.COMPUTE}
    assert [one.rank for one in said[-1]] == [1]


@pytest.mark.long
@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 1000),
    kinds=st.lists(st.integers(0, 1), min_size=2, max_size=6),
    extra_s=st.sampled_from([0.0, 0.012, 0.03]),
    unknown=st.sampled_from([0.0, 0.02]),
    sizes=st.lists(st.integers(1, 90), min_size=1, max_size=6),
)
def test_many_steps_at_once_lead_to_the_same_as_one_by_one(
    seed: int, kinds: list[int], extra_s: float, unknown: float, sizes: list[int]
) -> None:
    rng = np.random.default_rng(seed)
    tables = []
    for step in range(sum(sizes)):
        parts = np.zeros((len(PARTS), len(kinds)))
        parts[:3] = np.array([0.08, 0.005, 0.015])[:, None]
        parts[:3] *= 1.0 + 0.02 * rng.standard_normal(len(kinds))
        parts[0, 0] += extra_s if 40 <= step < 120 else 0.0
        parts[2, -1] += 0.05 if rng.random() < 0.02 else 0.0
        parts[:, rng.random(len(kinds)) < unknown] = np.nan
        late = np.nan_to_num(parts[:3].sum(axis=0)) - 0.1
        tables.append(StepTable(2 * step, parts, late))
    slow, quick = RankScorer(kinds), RankScorer(kinds)
    single = [judged for table in tables for judged in slow.update([table])]
    together: list[tuple[Verdict, ...]] = []
    for size in sizes:
        together += quick.update(tables[len(together) : len(together) + size])
    for mine, theirs in zip(single, together, strict=True):
        assert [replace(each, score=0, confidence=0, cost_s=0) for each in mine] == [
            replace(each, score=0, confidence=0, cost_s=0) for each in theirs
        ]
        for name in ("score", "confidence", "cost_s"):
            told, expected = (
                np.array([getattr(each, name) for each in some]) for some in (theirs, mine)
            )
            np.testing.assert_allclose(told, expected, atol=1e-9)
    np.testing.assert_allclose(slow.evidence, quick.evidence, atol=1e-9)
    np.testing.assert_allclose(slow.recent_slowdown, quick.recent_slowdown, atol=1e-9)


@pytest.mark.parametrize("every", [40, 100])
def test_checkpoints_that_all_ranks_write_blind_nobody(every: int) -> None:
    def change(step: int, parts: Floats) -> None:
        if step >= 60:
            parts[COMPUTE, 2] += 0.01
        if step % every == every - 1:
            # Not equally fast, but nobody is to blame for that.
            parts[UNATTRIBUTED] += 30.0 + np.array([0.1, 0.0, 0.4, 0.8])

    said = _run([0] * 4, change, steps=150)
    assert not any(said[:60])
    assert {one.rank for one in said[89]} == {2}
