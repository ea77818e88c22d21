"""Whether the Megatron at hand is one that is known: its version, and the functions that change."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Sequence
from types import ModuleType

# Versions of megatron-core with which jobs were run, or whose functions were read:
# docs/megatron-adaptor.md says which.
KNOWN = ("0.12", "0.13", "0.14", "0.15", "0.16")
TRAINING = "megatron.training.training"
CHECKPOINTING = "megatron.training.checkpointing"
# What is replaced, and the arguments by whose names or places it is called.
REPLACED = {
    "setup_model_and_optimizer": ("model_provider_func", "model_type"),
    "load_checkpoint": (),
    "train": ("forward_step_func", "model", "optimizer", "opt_param_scheduler"),
    "train_step": ("forward_step_func", "data_iterator", "model", "optimizer"),
    "checkpoint_and_decide_exit": (
        "model",
        "optimizer",
        "opt_param_scheduler",
        "iteration",
        "num_floating_point_operations_so_far",
        "checkpointing_context",
        "train_data_iterator",
    ),
}
_CALLED = (
    "get_args",
    "get_checkpoint_name",
    "get_checkpoint_tracker_filename",
    "generate_state_dict",
    "save_checkpoint",
    "load_checkpoint",
)


class DoesNotFit(Exception):
    """Megatron stays as it is; the text says why."""


def say(sentence: str) -> None:
    """One line for people, from rank 0 alone."""
    if os.environ.get("RANK", "0") == "0":
        sys.stderr.write(f"relkit: megatron_adaptor: {sentence}\n")


def fitting() -> ModuleType:
    """Megatron's module `megatron.training.training`.

    Raises:
        DoesNotFit: there is none, its version is not known, or its functions are others.
    """
    try:
        version = str(importlib.import_module("megatron.core").__version__)
    except (ImportError, AttributeError) as error:
        raise DoesNotFit(f"there is no megatron-core: {_brief(error)}") from error
    if ".".join(version.split(".")[:2]) not in KNOWN:
        raise DoesNotFit(
            f"megatron-core {version} is not known (known are {KNOWN[0]} to {KNOWN[-1]})"
        )
    try:
        training = importlib.import_module(TRAINING)
        checkpointing = importlib.import_module(CHECKPOINTING)
    except ImportError as error:
        raise DoesNotFit(
            f"Megatron-LM's megatron.training cannot be imported: {_brief(error)}"
        ) from error
    for name, arguments in REPLACED.items():
        _require(training, name, arguments, version)
    for name in _CALLED:
        _require(checkpointing, name, (), version)
    return training


def _require(module: ModuleType, name: str, arguments: Sequence[str], version: str) -> None:
    function = getattr(module, name, None)
    if not callable(function):
        raise DoesNotFit(f"{module.__name__} of megatron-core {version} has no {name}")
    taken = tuple(inspect.signature(function).parameters)
    if name == "train" or not arguments:
        missing = [argument for argument in arguments if argument not in taken]
    else:
        by_place = (*taken, *arguments)[: len(arguments)]
        missing = [a for a, b in zip(arguments, by_place, strict=True) if a != b]
        missing += arguments[len(taken) :]
    if missing:
        raise DoesNotFit(
            f"{name} of megatron-core {version} takes {', '.join(taken)}, where {missing[0]} was"
            " expected"
        )


def _brief(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
