"""The fleet's own yardstick: the healthy level and the noise, whatever the faults."""

from __future__ import annotations

import numpy as np
import pytest

from relkit.netcheck.solve.likelihood import misfit
from relkit.netcheck.solve.robust import Floats, healthy_level, noise_level


def drawn(seed: int, healthy: int, slow: int, share: float) -> Floats:
    rng = np.random.default_rng(seed)
    values = np.concatenate([np.full(healthy, 100.0), np.full(slow, 100.0 * share)])
    return values * (1.0 + 0.05 * rng.standard_normal(len(values)))


@pytest.mark.parametrize(("healthy", "slow"), [(400, 0), (300, 100), (150, 250), (12, 18)])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.75])
def test_the_level_is_that_of_the_healthy_even_where_most_edges_are_slow(
    healthy: int, slow: int, share: float
) -> None:
    for seed in range(10):
        level = healthy_level(drawn(seed, healthy, slow, share))
        assert level == pytest.approx(100.0, rel=0.05 if healthy > 50 else 0.1)


def test_one_fast_pair_does_not_set_the_norm() -> None:
    values = np.concatenate([drawn(1, 100, 0, 1.0), np.array([400.0, 400.0])])
    assert healthy_level(values) == pytest.approx(100.0, rel=0.03)


def test_the_level_of_one_value_is_that_value() -> None:
    assert healthy_level(np.array([7.0])) == pytest.approx(7.0)


@pytest.mark.parametrize("noise", [0.02, 0.05, 0.1])
def test_noise_is_read_from_the_healthy_half(noise: float) -> None:
    rng = np.random.default_rng(3)
    ratios = 1.0 + noise * rng.standard_normal(2000)
    ratios[:600] *= 0.5
    assert noise_level(ratios) == pytest.approx(noise, rel=0.1)


def test_little_data_leans_on_five_percent_and_more() -> None:
    assert 0.05 <= noise_level(np.array([1.0, 1.0])) < 0.12


def test_no_measurement_counts_for_more_than_the_cap_and_fast_ones_for_nothing() -> None:
    ratio = np.array([0.0, 0.5, 1.0, 1.3])
    cost = misfit(ratio, np.ones(4), 0.05)
    assert cost.tolist() == [10.0, 10.0, 0.0, 0.0]
