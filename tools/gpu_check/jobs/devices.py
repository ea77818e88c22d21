"""Which GPU a rank has: one of its own, or the only one there is, together with the other ranks."""

from __future__ import annotations

import os

import torch


def take_device() -> int:
    """Choose the GPU of this rank; its number.

    NCCL refuses two ranks of one host on one GPU. Ranks that share one therefore say that they are
    hosts of their own, and talk over sockets.
    """
    local_rank, ranks = int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
    devices = torch.cuda.device_count()
    if ranks > devices:
        os.environ["NCCL_HOSTID"] = f"rank{local_rank}"
        os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    device = local_rank % devices
    torch.cuda.set_device(device)
    return device
