"""Nodes of a job that meet in a rendezvous of torch's."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from torch._C._distributed_c10d import TCPStore
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import (
    DynamicRendezvousHandler,
    RendezvousTimeout,
)

LIMIT = timedelta(seconds=60)


def handlers(port: int, count: int) -> list[DynamicRendezvousHandler]:
    """Of a job of two nodes or more, as torchrun makes them: each with its own way to the store."""
    timeout = RendezvousTimeout(join=timedelta(seconds=60), last_call=timedelta(seconds=1))
    stores = [TCPStore("127.0.0.1", port, timeout=LIMIT) for _ in range(count)]
    return [
        DynamicRendezvousHandler.from_backend(
            "a job", store, C10dRendezvousBackend(store, "a job"), 2, count,
            local_addr="127.0.0.1", timeout=timeout,
        )
        for store in stores
    ]  # fmt: skip


def meet(nodes: Sequence[DynamicRendezvousHandler]) -> set[tuple[int, int]]:
    """The (rank, world size) that each gets."""
    with ThreadPoolExecutor(len(nodes)) as pool:
        met = list(pool.map(lambda node: node.next_rendezvous(), nodes))
    return {(each.rank, each.world_size) for each in met}
