"""How a rank of a test's job with DDP or FSDP ends."""

from __future__ import annotations

from typing import NoReturn

import torch.distributed as dist

from relkit.process.process_exit import leave


def end_rank() -> NoReturn:
    """End with exit code 0, without taking the interpreter down.

    Threads of gloo live on with what is left of the model, and one that drops a tensor while the
    interpreter ends would abort the process, now and then (pytorch/pytorch#179291).
    """
    dist.destroy_process_group()
    leave(0)
