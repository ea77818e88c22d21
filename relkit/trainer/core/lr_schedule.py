"""The learning rate over time: linear warm-up, then cosine, linear or constant."""

from __future__ import annotations

import math

from relkit.trainer.config.config import OptimizerConfig


def decay_steps(config: OptimizerConfig, training_iters: int) -> int:
    """Step at which the lowest rate is reached."""
    return training_iters if config.decay_steps is None else config.decay_steps


def warmup_steps(config: OptimizerConfig, training_iters: int) -> float:
    """Length of the warm-up in steps; a fraction of the decay need not be whole."""
    if config.warmup_fraction is not None:
        return config.warmup_fraction * decay_steps(config, training_iters)
    return config.warmup_steps


def learning_rate(config: OptimizerConfig, training_iters: int, steps_done: int) -> float:
    """The rate of the step that follows `steps_done` successful ones.

    As Megatron has it: the first step of a warm-up has rate 0, skipped steps do not count, and
    after `decay_steps` the lowest rate stays.

    Args:
        training_iters: of the run, where config.decay_steps is None.
        steps_done: optimizer steps whose gradients were finite.
    """
    highest, lowest = config.learning_rate, config.end_learning_rate
    warmup = warmup_steps(config, training_iters)
    if warmup > 0 and steps_done <= warmup:
        return highest * steps_done / warmup
    if config.lr_decay_style == "constant":
        return highest
    end = decay_steps(config, training_iters)
    if steps_done >= end:
        return lowest
    share = (steps_done - warmup) / (end - warmup)
    if config.lr_decay_style == "cosine":
        return lowest + (highest - lowest) * 0.5 * (1 + math.cos(math.pi * share))
    return lowest + (highest - lowest) * (1 - share)
