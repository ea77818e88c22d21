"""Nodes of a job as far as their rendezvous goes, in threads of this process."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from typing import Any

from torch._C._distributed_c10d import TCPStore
from torch.distributed.elastic.rendezvous import RendezvousParameters
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import (
    DynamicRendezvousHandler,
    RendezvousTimeout,
)

from relkit.launch.job.bounded_calls import BoundedCalls
from relkit.launch.job.rendezvous import keep_alive_as_asked, leave_rendezvous
from relkit.launch.spares.settings import SpareSettings
from relkit.launch.spares.spare_rendezvous import SpareRendezvous
from tests.patience import PATIENCE
from tests.waiting import eventually

LIMIT, JOIN = timedelta(seconds=60), timedelta(hours=1)
# As torch has it.
LAST_CALL = timedelta(seconds=30)
LIMIT_S = 40.0 * PATIENCE
HEARTBEAT_S = 1


class Node:
    """A launcher as far as its rendezvous goes."""

    def __init__(
        self,
        port: int,
        name: str,
        settings: SpareSettings,
        nodes: tuple[int, int],
        last_call: timedelta = LAST_CALL,
        address: str = "127.0.0.1",
    ) -> None:
        store = TCPStore("127.0.0.1", port, timeout=LIMIT)
        self.handler = DynamicRendezvousHandler.from_backend(
            "a job", store, C10dRendezvousBackend(store, "a job"), *nodes,
            local_addr=address, timeout=RendezvousTimeout(join=JOIN, last_call=last_call),
        )  # fmt: skip
        beats: dict[str, Any] = {"keep_alive_interval": HEARTBEAT_S, "keep_alive_max_attempt": 600}
        parameters = RendezvousParameters("c10d", address, "a job", *nodes, **beats)
        keep_alive_as_asked(self.handler, parameters)
        self.name, self.restarts, self.log = name, 0, list[str]()
        self.meeting = SpareRendezvous(settings, self.log.append, name)
        self.meeting.attach(self.handler, lambda: self.restarts)

    def leave(self, why: str) -> None:
        self.meeting.leaving_why = why
        leave_rendezvous(self.handler, BoundedCalls("test"))

    def waits_to_meet_again(self) -> bool:
        return bool(self.handler.num_nodes_waiting() > 0)

    def may_replace(self) -> bool:
        return self.meeting.may_replace


class Job:
    """Some nodes, in threads of this process."""

    def __init__(
        self, settings: SpareSettings, nodes: tuple[int, int], last_call: timedelta = LAST_CALL
    ) -> None:
        self.server = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self.settings, self.nodes, self.last_call = settings, nodes, last_call
        self.all: list[Node] = []
        self.pool = ThreadPoolExecutor(8)

    def add(self, *names: str, address: str = "127.0.0.1") -> list[Node]:
        port, more = self.server.port, (self.settings, self.nodes, self.last_call, address)
        new = [Node(port, name, *more) for name in names]
        # The store is in this process, in which all of them are; the first of them has it.
        for node in new[not self.all :]:
            node.meeting._is_host = False
        self.all += new
        return new

    def meets(self, nodes: Sequence[Node]) -> list[Future[tuple[int, int]]]:
        def meet(node: Node) -> tuple[int, int]:
            # As the agent does it: torch would keep the store of an earlier meeting.
            node.handler._bootstrap_store_info = node.handler._shared_tcp_store_server = None
            met = node.handler.next_rendezvous()
            return met.rank, met.world_size

        return [self.pool.submit(meet, node) for node in nodes]

    def meet(self, nodes: Sequence[Node]) -> set[tuple[int, int]]:
        return {future.result(LIMIT_S) for future in self.meets(nodes)}

    def spare(self, name: str) -> tuple[Node, Future[tuple[int, int]]]:
        """A node that waits as one."""
        (node,) = self.add(name)
        (future,) = self.meets([node])
        eventually(lambda: node.meeting.waits_as_spare, lambda: str(node.log))
        return node, future
