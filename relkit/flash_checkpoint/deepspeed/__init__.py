"""Flash checkpoints for DeepSpeed's engine, under the names of DLRover's.

from relkit.flash_checkpoint.deepspeed import DeepSpeedCheckpointer, StorageType

checkpointer = DeepSpeedCheckpointer(engine, folder)
_, client_state = checkpointer.load_checkpoint(folder)
...
checkpointer.save_checkpoint(folder, client_state=..., storage_type=StorageType.MEMORY)
"""

from __future__ import annotations

from relkit.flash_checkpoint.deepspeed.checkpointer import DeepSpeedCheckpointer
from relkit.flash_checkpoint.storage_type import StorageType

__all__ = ("DeepSpeedCheckpointer", "StorageType")
