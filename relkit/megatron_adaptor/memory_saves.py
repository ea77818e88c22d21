"""Every step of a Megatron program kept in memory, and loaded from there.

RELKIT_FLASH_EVERY=N keeps each Nth step only, 0 none. Without a launcher there is no memory that
outlives the job, and Megatron saves and loads alone.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from relkit.errors import RelkitError
from relkit.flash_checkpoint.megatron import StorageType, load_checkpoint, save_checkpoint
from relkit.megatron_adaptor import everywhere
from relkit.megatron_adaptor.fit import say
from relkit.text.whole_number import whole_number

EVERY = "RELKIT_FLASH_EVERY"
# Of the others, Megatron's saving draws on more than one rank's memory, or is not known.
_FORMATS = ("torch", "torch_dist")
# What is saved with another's help, or beside the checkpoint, which a step in memory would lack.
_LEFT_TO_MEGATRON = ("async_save", "dataloader_save", "reuse_grad_buf_for_mxfp8_param_ag")
load = load_checkpoint


class _Failures:
    """What was said of saves that failed, so that it is said once."""

    said = False


def wanted(args: Any) -> bool:  # noqa: ANN401
    """Whether steps are kept in memory: a launcher's memory, a folder, a format that is known."""
    return (
        bool(args.save)
        and _every() > 0
        and getattr(args, "ckpt_format", "torch") in _FORMATS
        and getattr(args, "non_persistent_ckpt_type", None) is None
        and not any(getattr(args, name, None) for name in _LEFT_TO_MEGATRON)
        and everywhere.memory()
    )


def due(args: Any, iteration: int) -> bool:  # noqa: ANN401
    """Whether this step is kept."""
    return wanted(args) and iteration % _every() == 0


def save(
    iteration: int,
    model: Sequence[Any],
    optimizer: Any,  # noqa: ANN401
    opt_param_scheduler: Any,  # noqa: ANN401
    flops: float,
) -> None:
    """Keep a step; a failure is said once, and the next step is tried again.

    Every rank goes through Megatron's own function, whose barriers all ranks have to meet: a rank
    that gave up by itself would have the others wait.
    """
    _gather_weights(model)
    try:
        save_checkpoint(
            iteration,
            model,
            optimizer,
            opt_param_scheduler,
            flops,
            storage_type=StorageType.MEMORY,
        )
    except RelkitError as error:
        if not _Failures.said:
            _Failures.said = True
            say(f"step {iteration} is not kept in memory: {error}")


def _gather_weights(model: Sequence[Any]) -> None:
    """With --overlap-param-gather, weights of other ranks' shards are a step old until the forward.

    Megatron gathers them before its own saves, outside of its `save_checkpoint`.
    """
    for chunk in model:
        if getattr(getattr(chunk, "ddp_config", None), "overlap_param_gather", False):
            chunk.start_param_sync(force_sync=True)


def _every() -> int:
    count = whole_number(os.environ.get(EVERY, "1"))
    return 1 if count is None else count
