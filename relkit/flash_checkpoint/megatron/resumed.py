"""Megatron's arguments where a job goes on from what it has saved itself."""

from __future__ import annotations

from typing import Any


def as_resumed(arguments: Any) -> dict[str, Any]:  # noqa: ANN401
    """What `load_checkpoint` is to find, though the job began from another's weights.

    Args:
        arguments: Megatron's. What was left out of the save is still left out of the load.
    """
    values: dict[str, Any] = {
        "finetune": False,
        "pretrained_checkpoint": None,
        "ckpt_step": None,
        # Of the checkpoint that the job began from; its own are of today's layout.
        "ckpt_convert_update_legacy_dist_opt_format": False,
    }
    for part in ("optim", "rng"):
        if not getattr(arguments, f"no_save_{part}", None):
            values[f"no_load_{part}"] = None
    return values
