"""Steps without CPU time in them: who may only have waited for a core is not accused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from relkit.straggler import measured_steps as columns
from relkit.straggler.measured_steps import MEASURED_PARTS, MeasuredSteps, RankSteps
from relkit.straggler.model import Floats
from relkit.straggler.score.measured_job import fewest_steps, judge
from relkit.straggler.score.quickest_steps import quickest_parts

OPERATIONS, STEPS = 40, 16


def rank_of(number: int, took_s: Floats, rest_s: float = 0.001) -> RankSteps:
    """A rank by what its operations took, (operations, steps)."""
    steps = took_s.shape[1]
    parts = np.zeros((MEASURED_PARTS, steps))
    parts[columns.COMPUTE], parts[columns.REST] = took_s.sum(axis=0), rest_s
    parts[columns.COLLECTION] = np.nan
    parts[columns.WALL] = 1.0
    names = tuple((f"op{place}", 0) for place in range(len(took_s)))
    return RankSteps(number, np.arange(steps), parts, "all", "", names, took_s)


def job(*ranks: RankSteps) -> MeasuredSteps:
    return MeasuredSteps("a", ranks, len(ranks), "operations", busy_host_shows=True)


def crowded(chance: np.random.Generator, waits: float, factor: float = 1.0) -> Floats:
    """Operations of 1 ms each, of which so many wait for a core in a step, 4 ms or more."""
    waiting = chance.random((OPERATIONS, STEPS)) < waits
    took_ms = factor * (1.0 + 0.02 * chance.random((OPERATIONS, STEPS)))
    return np.asarray((took_ms + waiting * (4.0 + 4.0 * chance.random(took_ms.shape))) / 1e3)


@pytest.mark.parametrize("seed", range(10))
def test_who_waits_for_a_core_is_not_slow(seed: int) -> None:
    """One rank waits half of the time, the others hardly: it takes three times as long."""
    chance = np.random.default_rng(seed)
    ranks = [rank_of(rank, crowded(chance, 0.4 if rank == 1 else 0.05)) for rank in range(3)]
    taken_s = [float(np.median(rank.parts[columns.COMPUTE])) for rank in ranks]
    assert taken_s[1] > 1.8 * taken_s[0]
    assert judge(job(*ranks)).history.verdicts == ()


@pytest.mark.parametrize("seed", range(10))
def test_who_is_slow_is_named_though_all_wait(seed: int) -> None:
    chance = np.random.default_rng(seed)
    ranks = [rank_of(rank, crowded(chance, 0.3, 1.5 if rank == 2 else 1.0)) for rank in range(3)]
    (raised,) = judge(job(*ranks)).history.verdicts
    assert raised.verdict.rank == 2
    assert raised.verdict.first_step == 0


def test_since_when_it_is_slow() -> None:
    chance = np.random.default_rng(1)
    slow_s = crowded(chance, 0.1)
    slow_s[:, 6:] *= 1.5
    ranks = [rank_of(0, slow_s), *(rank_of(rank, crowded(chance, 0.1)) for rank in (1, 2))]
    (raised,) = judge(job(*ranks)).history.verdicts
    assert (raised.verdict.rank, raised.verdict.first_step) == (0, 6)


def test_too_few_steps_tell_nothing() -> None:
    took_s = np.full((OPERATIONS, 8), 0.001)
    slow, other = rank_of(0, 1.5 * took_s), rank_of(1, took_s)
    measured = job(slow, other)
    assert judge(measured).history.verdicts == ()
    assert fewest_steps(measured) == 9
    assert fewest_steps(replace(measured, busy_host_shows=False)) == 5


TIMES = arrays(
    np.float64, st.tuples(st.integers(1, 4), st.integers(1, 9)),
    elements=st.one_of(st.floats(0.0, 10.0), st.just(float("nan"))),
)  # fmt: skip


@given(TIMES)
def test_the_quickest_is_never_longer_than_the_step(took_s: Floats) -> None:
    rank = rank_of(0, np.nan_to_num(took_s))
    quickest = quickest_parts(replace(rank, operation_s=took_s))
    assert (quickest[columns.COMPUTE] <= rank.parts[columns.COMPUTE] + 1e-12).all()
    assert (quickest[columns.COMPUTE] >= 0.0).all()
    assert (quickest[columns.WALL] == rank.parts[columns.WALL]).all()
