"""A job that is started again goes on from what it has saved itself, whatever --load says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch.distributed as dist

from relkit.errors import RelkitError
from relkit.flash_checkpoint.megatron.resumed import as_resumed
from relkit.megatron_adaptor import everywhere
from relkit.megatron_adaptor.fit import say
from relkit.ttp.environment import saved_since_the_start, worker_environment


def point_to_own_saves(args: Any) -> None:  # noqa: ANN401
    """Have --load name the folder of --save, if this job has saved there before it was restarted.

    Every rank must call it, once, before anything is loaded.
    """
    if not everywhere.try_to_persist() or not args.save:
        return
    try:
        mine = saved_since_the_start(worker_environment().marks, Path(args.save))
    except (RelkitError, OSError):
        mine = False
    everybody = [mine]
    if dist.is_initialized() and dist.get_world_size() > 1:
        everybody = [False] * dist.get_world_size()
        dist.all_gather_object(everybody, mine)
    # Of all ranks: a node that has come in later knows neither of restarts nor of saves.
    if not any(everybody):
        return
    changed = {"load": args.save} | as_resumed(args)
    if any(getattr(args, name, value) != value for name, value in changed.items()):
        say(f"this job was restarted, and goes on from what it has saved in {args.save}")
    for name, value in changed.items():
        if hasattr(args, name):
            setattr(args, name, value)
