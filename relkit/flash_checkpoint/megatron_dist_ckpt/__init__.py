"""The same as `relkit.flash_checkpoint.megatron`, under DLRover's name for distributed checkpoints.

Whether a checkpoint is one of megatron-core's distributed ones, Megatron's arguments say.
"""

from __future__ import annotations

from relkit.flash_checkpoint.megatron import StorageType, load_checkpoint, save_checkpoint

__all__ = ("StorageType", "load_checkpoint", "save_checkpoint")
