"""What the launchers of all nodes give: where one does not, all ranks go without.

A rank that saves a step alone, or waits at a barrier that others do not know of, ends the job.
"""

from __future__ import annotations

import os

import torch.distributed as dist

from relkit.errors import RelkitError
from relkit.flash_checkpoint.rank_group import group_of_job
from relkit.flash_checkpoint.slots import slot_folder
from relkit.megatron_adaptor.fit import say
from relkit.ttp import environment

_WHAT = ("try-to-persist", "checkpoints in memory")


class _Agreed:
    """What all ranks have, in the order of _WHAT; None before they were asked."""

    everywhere: list[bool] | None = None


def agree() -> None:
    """Ask all ranks, through torch's store; each must call it, once there is a process group.

    Ranks of one node have one launcher, and are not asked.
    """
    mine = _mine()
    everybody = [mine]
    on_one_node = os.environ.get("LOCAL_WORLD_SIZE") == os.environ.get("WORLD_SIZE")
    if dist.is_initialized() and not on_one_node:
        try:
            everybody = group_of_job().all_gather(mine)
        except RelkitError as error:
            say(f"{error}; nothing is saved that is not Megatron's own")
            everybody = [[False, False]]
    _Agreed.everywhere = [all(column) for column in zip(*everybody, strict=True)]
    for what, here, all_have in zip(_WHAT, mine, _Agreed.everywhere, strict=True):
        if here and not all_have:
            say(f"{what}: the launcher of a node does not give it, and all ranks go without")


def try_to_persist() -> bool:
    """Whether all ranks run under try-to-persist."""
    return (_Agreed.everywhere or _mine())[0]


def memory() -> bool:
    """Whether all ranks have a launcher's memory."""
    return (_Agreed.everywhere or _mine())[1]


def _mine() -> list[bool]:
    return [environment.enabled(), slot_folder.of_launcher() is not None]
