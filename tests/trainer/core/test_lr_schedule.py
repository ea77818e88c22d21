"""The learning rate against megatron-core's scheduler, and the loss scale over time."""

from __future__ import annotations

import importlib
import math
import warnings
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from relkit.trainer.config.config import ModelConfig, OptimizerConfig, TrainerConfig, TrainingConfig
from relkit.trainer.core.loss_scaler import LossScaler
from relkit.trainer.core.lr_schedule import learning_rate

ITERS = 40
CASES = [
    OptimizerConfig(learning_rate=3e-3, lr_decay_style=style, **more)
    for style in ("cosine", "linear", "constant")
    for more in (
        {},
        {"end_learning_rate": 3e-4},
        {"end_learning_rate": 3e-4, "warmup_steps": 7},
        {"end_learning_rate": 3e-4, "warmup_steps": 7, "decay_steps": 23},
        {"warmup_fraction": 0.25, "decay_steps": 20},
        {"warmup_steps": 1},
    )
]


def from_megatron(module: str, name: str) -> Any:  # noqa: ANN401
    """Something of megatron-core, whose import takes two seconds."""
    with warnings.catch_warnings():
        # It reaches parts of torch that warn of being deprecated.
        warnings.simplefilter("ignore")
        return getattr(importlib.import_module(f"megatron.core.{module}"), name)


def of_megatron(config: OptimizerConfig) -> list[float]:
    end = config.decay_steps or ITERS
    warmup = config.warmup_steps
    if config.warmup_fraction is not None:
        warmup = int(config.warmup_fraction * end)
    group = {"lr": 0.0, "weight_decay": 0.0}
    scheduler = from_megatron("optimizer_param_scheduler", "OptimizerParamScheduler")(
        SimpleNamespace(param_groups=[group]),
        init_lr=0.0,
        max_lr=config.learning_rate,
        min_lr=config.end_learning_rate,
        lr_warmup_steps=warmup,
        lr_decay_steps=end,
        lr_decay_style=config.lr_decay_style,
        start_wd=0.01,
        end_wd=0.01,
        wd_incr_steps=end,
        wd_incr_style="constant",
    )
    rates = []
    for _ in range(ITERS + 5):
        rates.append(group["lr"])
        scheduler.step(1)
    return rates


@pytest.mark.parametrize("config", CASES)
def test_the_rate_is_that_of_megatron(config: OptimizerConfig) -> None:
    ours = [learning_rate(config, ITERS, step) for step in range(ITERS + 5)]
    assert ours == pytest.approx(of_megatron(config), rel=1e-12)


def test_a_cosine_in_numbers() -> None:
    config = OptimizerConfig(
        learning_rate=1.0, end_learning_rate=0.2, lr_decay_style="cosine", warmup_steps=4
    )
    assert [learning_rate(config, 12, step) for step in (0, 1, 4, 8, 12, 99)] == pytest.approx(
        [0.0, 0.25, 1.0, 0.6, 0.2, 0.2]
    )


def test_a_warmup_as_long_as_the_decay() -> None:
    config = OptimizerConfig(learning_rate=1.0, warmup_fraction=1.0)
    assert [learning_rate(config, 4, step) for step in range(6)] == [0.0, 0.25, 0.5, 0.75, 1.0, 0.0]


def scaled(dtype: str) -> LossScaler:
    return LossScaler.start(
        TrainerConfig(
            training=TrainingConfig(training_iters=1, loss_scale=16.0, loss_scale_window=3),
            model=ModelConfig(
                num_layers=1, hidden_size=8, num_attention_heads=1, compute_dtype=dtype
            ),
        )
    )


def test_the_loss_scale_halves_at_once_and_doubles_after_a_window() -> None:
    scaler, seen = scaled("float16"), []
    for finite in (True, True, True, False, True, True, False, True, True, True, True):
        scaler = scaler.after(finite)
        seen.append(scaler.scale)
    assert seen == [16, 16, 32, 16, 16, 16, 8, 8, 8, 16, 16]
    assert scaled("float16").restored(scaler.state()) == scaler
    for _ in range(20):
        scaler = scaler.after(finite=False)
    assert scaler.scale == 1.0
    assert math.isfinite(scaler.state()["growth_tracker"])


@settings(deadline=None)
@given(
    st.lists(st.booleans(), max_size=60), st.integers(1, 4), st.integers(1, 4), st.integers(0, 4)
)
def test_it_is_megatrons_scaler(
    steps: list[bool], window: int, hysteresis: int, minimum_log2: int
) -> None:
    minimum = 2.0**minimum_log2
    # Without its constructor, which puts its numbers on a GPU.
    scaler: Any = from_megatron("optimizer.grad_scaler", "DynamicGradScaler")
    theirs = object.__new__(scaler)
    theirs._scale, theirs.min_scale = torch.tensor(16.0), torch.tensor(minimum)
    theirs.growth_factor, theirs.backoff_factor = torch.tensor(2.0), torch.tensor(0.5)
    theirs.growth_interval, theirs.hysteresis = window, hysteresis
    theirs._growth_tracker, theirs._hysteresis_tracker = 0, hysteresis
    ours = LossScaler(16.0, window, minimum, hysteresis, overflows_left=hysteresis)
    for finite in steps:
        theirs.update(not finite)
        ours = ours.after(finite).restored(ours.after(finite).state())
        assert ours.state() == {
            "scale": float(theirs._scale),
            "growth_tracker": theirs._growth_tracker,
            "hysteresis_tracker": theirs._hysteresis_tracker,
        }


def test_a_checkpoint_without_the_count_of_overflows() -> None:
    scaler = LossScaler(16.0, 3, hysteresis=2, overflows_left=2)
    older = {"scale": 8.0, "growth_tracker": 1.0}
    assert scaler.restored(older) == LossScaler(8.0, 3, 1.0, 2, good_steps=1, overflows_left=2)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_other_types_need_no_loss_scale(dtype: str) -> None:
    scaler = scaled(dtype)
    assert (scaler.scale, scaler.state()) == (1.0, {})
    assert scaler.after(finite=False) is scaler
