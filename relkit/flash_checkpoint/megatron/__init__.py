"""Flash checkpoints for Megatron-LM, under the names of DLRover's.

from relkit.flash_checkpoint.megatron import StorageType, load_checkpoint, save_checkpoint

args.iteration, _ = load_checkpoint(model, optimizer, opt_param_scheduler)
...
save_checkpoint(iteration, model, optimizer, opt_param_scheduler, storage_type=StorageType.MEMORY)
"""

from __future__ import annotations

from relkit.flash_checkpoint.megatron.drop_in import load_checkpoint, save_checkpoint
from relkit.flash_checkpoint.storage_type import StorageType

__all__ = ("StorageType", "load_checkpoint", "save_checkpoint")
