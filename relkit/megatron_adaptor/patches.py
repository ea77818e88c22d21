"""Puts relkit's functions around Megatron's: all of them, once, or none."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from relkit.hook.marks import mark_step
from relkit.megatron_adaptor import everywhere, memory_saves, resume
from relkit.megatron_adaptor.fit import REPLACED, DoesNotFit, fitting, say
from relkit.megatron_adaptor.training_run import TrainingRun

_MARK = "_relkit_wraps"
Function = Callable[..., Any]


class _Current:
    """The run that is under way in this process."""

    run: TrainingRun | None = None


def adapt() -> bool:
    """Change Megatron, if it is one that is known and has not been changed before.

    Returns:
        whether it is changed now.
    """
    try:
        training = fitting()
    except DoesNotFit as why:
        say(f"{why}; Megatron is left as it was")
        return False
    if not adapted(training):
        wrappers = {
            "setup_model_and_optimizer": _setup,
            "load_checkpoint": _load,
            "train": _train,
            "train_step": _train_step,
            "checkpoint_and_decide_exit": _end_of_step,
        }
        assert wrappers.keys() == REPLACED.keys()
        for name, wrapper in wrappers.items():
            setattr(training, name, _around(training, getattr(training, name), wrapper))
    return True


def adapted(training: ModuleType) -> bool:
    """Whether Megatron's training module is changed."""
    return hasattr(training.train, _MARK)


def _around(training: ModuleType, inner: Function, wrapper: Function) -> Function:
    @functools.wraps(inner)
    def outer(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401
        return wrapper(training, inner, *arguments, **options)

    setattr(outer, _MARK, inner)
    return outer


def _setup(training: ModuleType, inner: Function, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401
    everywhere.agree()
    resume.point_to_own_saves(training.get_args())
    return inner(*arguments, **options)


def _load(training: ModuleType, inner: Function, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401
    if memory_saves.wanted(training.get_args()):
        return memory_saves.load(*arguments, **options)
    return inner(*arguments, **options)


def _train(
    training: ModuleType,
    inner: Function,
    forward_step_func: Function,
    model: Any,  # noqa: ANN401
    optimizer: Any,  # noqa: ANN401
    opt_param_scheduler: Any,  # noqa: ANN401
    *arguments: Any,  # noqa: ANN401
    **options: Any,  # noqa: ANN401
) -> Any:  # noqa: ANN401
    def train() -> Any:  # noqa: ANN401
        return inner(
            forward_step_func, model, optimizer, opt_param_scheduler, *arguments, **options
        )

    args = training.get_args()
    if not everywhere.try_to_persist() or not args.save:
        return train()
    run = TrainingRun.begun(training, model, optimizer, opt_param_scheduler)
    if run is None:
        return train()
    _Current.run = run
    try:
        return run.persist(train)
    finally:
        _Current.run = None


def _train_step(training: ModuleType, inner: Function, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401
    iteration = int(getattr(training.get_args(), "curr_iteration", 0))
    mark_step(iteration)
    if _Current.run is not None:
        _Current.run.step_begins(iteration)
    return inner(*arguments, **options)


def _end_of_step(
    training: ModuleType,
    inner: Function,
    model: Any,  # noqa: ANN401
    optimizer: Any,  # noqa: ANN401
    opt_param_scheduler: Any,  # noqa: ANN401
    iteration: int,
    flops: float,
    *arguments: Any,  # noqa: ANN401
    **options: Any,  # noqa: ANN401
) -> Any:  # noqa: ANN401
    if memory_saves.due(training.get_args(), iteration):
        memory_saves.save(iteration, model, optimizer, opt_param_scheduler, flops)
    return inner(model, optimizer, opt_param_scheduler, iteration, flops, *arguments, **options)
