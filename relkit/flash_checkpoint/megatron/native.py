"""Megatron-LM's own functions for checkpoints, whichever version is installed."""

from __future__ import annotations

import importlib
import inspect
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from relkit.errors import UsageProblem

# Since core 0.6, and before.
_MODULES = ("megatron.training.checkpointing", "megatron.checkpointing")
_ASYNC_SAVES = "megatron.training.async_utils"
_FLOPS = "num_floating_point_operations_so_far"


class Megatron:
    """What is used of Megatron-LM: `save_checkpoint`, `load_checkpoint`, arguments and names.

    Raises:
        UsageProblem: it is not installed.
    """

    def __init__(self) -> None:
        self.checkpointing = _imported()
        self._saves = inspect.signature(self.checkpointing.save_checkpoint).parameters
        self._loads = inspect.signature(self.checkpointing.load_checkpoint).parameters

    @property
    def arguments(self) -> Any:  # noqa: ANN401
        """Megatron's `get_args()`."""
        return self.checkpointing.get_args()

    def save(self, required: tuple[Any, ...], flops: float, options: Mapping[str, Any]) -> None:
        """Megatron's `save_checkpoint`.

        Args:
            required: iteration, model, optimizer, opt_param_scheduler.
            flops: given where this version of Megatron takes it.
            options: its further arguments, by name.
        """
        further = {_FLOPS: flops} if _FLOPS in self._saves else {}
        self.checkpointing.save_checkpoint(*required, **further, **_known(options, self._saves))

    def load(self, required: tuple[Any, ...], options: Mapping[str, Any]) -> tuple[int, float]:
        """Megatron's `load_checkpoint`.

        Returns:
            the iteration, and the floating-point operations so far: 0 before Megatron 0.5.
        """
        loaded = self.checkpointing.load_checkpoint(*required, **_known(options, self._loads))
        if isinstance(loaded, tuple):
            return int(loaded[0]), loaded[1]
        return int(loaded), 0

    def end_own_saves(self) -> None:
        """Wait for what Megatron saves with `--async-save`. Every rank must call it."""
        if not getattr(self.arguments, "async_save", False):
            return
        try:
            saves = importlib.import_module(_ASYNC_SAVES)
        except ModuleNotFoundError:
            return  # before core 0.7, which saves while the loop waits
        saves.maybe_finalize_async_save(blocking=True)

    def file_of_rank(self, iteration: int) -> str:
        """The file that this rank loads, within the folder of an iteration."""
        folder, name = "/", self.checkpointing.get_checkpoint_name("/", iteration)
        within = os.path.relpath(str(name), folder).split("/", 1)
        return within[1]

    @contextmanager
    def with_arguments(self, **values: Any) -> Iterator[None]:  # noqa: ANN401
        """Other values of Megatron's arguments for a while; what it does not have is left."""
        arguments = self.arguments
        before = {name: getattr(arguments, name) for name in values if hasattr(arguments, name)}
        try:
            for name in before:
                setattr(arguments, name, values[name])
            yield
        finally:
            for name, value in before.items():
                setattr(arguments, name, value)


def _known(options: Mapping[str, Any], parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Options without those left at None that this version does not have.

    Of the others, Megatron itself refuses what it does not know.
    """
    return {
        name: value for name, value in options.items() if value is not None or name in parameters
    }


def _imported() -> ModuleType:
    for name in _MODULES:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not name.startswith(error.name):
                raise  # of Megatron's own requirements
    raise UsageProblem(
        "Megatron-LM is not installed: there is no megatron.training",
        next_step="Put the root of Megatron-LM on PYTHONPATH; megatron-core alone does not train.",
    )
