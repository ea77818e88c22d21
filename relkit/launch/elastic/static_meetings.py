"""Has nodes of a static rendezvous meet anew for each attempt, and workers in a fresh store.

torch's own (`--master-addr`, `--node-rank`) knows no attempts: it gives the same store each time,
and at once. Restarted workers find the addresses of dead ones in it, and fail or hang; and no node
learns that another one restarts its workers.

The store of the first attempt is the one that the user has named, as under torchrun. For each
further one the launcher of node 0 opens another, on a free port, and tells the others. Where one of
them cannot reach it, as behind a firewall that lets only the named port through, workers meet in
the first store again.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any

from torch._C._distributed_c10d import PrefixStore, Store, TCPStore
from torch.distributed.elastic.agent.server.api import WorkerSpec
from torch.distributed.elastic.rendezvous.api import (
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousInfo,
    RendezvousStoreInfo,
    RendezvousTimeoutError,
)

from relkit.launch.job.bounded_calls import BoundedCalls
from relkit.launch.job.exchange import CONNECT_TIMEOUT_S, ExchangeBroken, Mailbox, MemoryMailbox
from relkit.launch.job.settings import Log
from relkit.ranks import RankSet
from relkit.text.whole_number import whole_number

_STATIC = "static"
_POLL_S = 0.1
_AGAIN = "again"
_MAX_PORT = (1 << 16) - 1
# How long a node tries to connect to the new store, s.
_REACH_S = 10.0
_YES, _NO = "1", "0"


class StaticMeetings:
    """The meetings of one node; `calls` makes the calls to its rendezvous, of whatever kind.

    Args:
        spec: of this job's workers; that of another rendezvous is left as it is.
        log: writes one line to the terminal.

    Attributes:
        is_static: the rendezvous is; of another one, `begin` is not to be called.
    """

    def __init__(self, spec: WorkerSpec, log: Log) -> None:
        self._spec, self._log = spec, log
        self.calls = BoundedCalls("relkit-rendezvous")
        handler: Any = spec.rdzv_handler
        self._handler = handler
        self.is_static = self._handler.get_backend() == _STATIC
        self._meetings = 0
        # Of the workers of this attempt, where this node has opened it.
        self._server: TCPStore | None = None
        # In which a node says that it meets the others again; None where nobody could read it.
        self._notes: Mailbox | None = None
        self._store: Store | None = None
        self._stopped = threading.Event()
        if self.is_static:
            self._handler.next_rendezvous = partial(self._meet, self._handler.next_rendezvous)
            self._handler.num_nodes_waiting = self._waiting

    def begin(self, notes: Mailbox) -> None:
        """An attempt of a static rendezvous begins.

        Args:
            notes: shared by the nodes of this attempt alone.
        """
        self._notes = notes if notes.nodes > 1 else None

    def stop(self) -> None:
        """Wait for nobody any longer: this launcher ends."""
        self._stopped.set()

    def close(self) -> None:
        """Tell the others that this node has ended, and meets them no more."""
        if self._store is not None and self._handler.world_size > 1:
            with suppress(RuntimeError, OSError):
                self._store.set(_ended(self._handler.rank), "1")

    def restarts_left(self, counted: int) -> int:
        """As many on all nodes, whichever of them has asked for one.

        An older torch has workers of one attempt find each other by that number.

        Args:
            counted: by torch, on this node.
        """
        if self.is_static and self._handler.world_size > 1:
            return max(0, int(self._spec.max_restarts) - (self._meetings - 1))
        return counted

    def _waiting(self) -> int:
        """As torch asks: whether another node wants to meet again; the workers are then restarted.

        The store may have gone: that ends no workers.
        """
        notes = self._notes
        if notes is None or notes.is_stuck:
            return 0
        try:
            return int(notes.get(_AGAIN) is not None)
        except ExchangeBroken:
            if not notes.is_stuck:
                # Its host has gone. Asked no more: torch prints a page each time.
                self._notes = None
            return 0

    def _meet(self, by_torch: Callable[[], RendezvousInfo]) -> RendezvousInfo:
        number, self._meetings = self._meetings, self._meetings + 1
        info = by_torch()
        self._store = info.store
        if number == 0:
            self._forget_end()
            return info
        store = PrefixStore(f"relkit/meeting-{number}", info.store)
        self._call_others()
        try:
            port = self._port_for_all(store, number)
        except (RuntimeError, OSError) as error:
            raise RendezvousConnectionError(f"its store does not answer: {error}") from error
        self._spec.master_port = port
        bootstrap = RendezvousStoreInfo(self._handler.master_addr, port)
        return RendezvousInfo(store, info.rank, info.world_size, bootstrap)

    def _forget_end(self) -> None:
        """A launcher that was here before has said that it comes no more; this one does."""
        if self._store is not None and self._handler.world_size > 1:
            with suppress(RuntimeError, OSError):
                self._store.delete_key(_ended(self._handler.rank))

    def _call_others(self) -> None:
        """Have nodes whose workers have not failed meet again, too."""
        notes, self._notes = self._notes or MemoryMailbox(), None
        with suppress(ExchangeBroken):
            notes.put(_AGAIN, b"1")

    def _port_for_all(self, store: Store, number: int) -> int:
        """Where the workers of this attempt meet, once all nodes have come, with none of theirs."""
        node, nodes = self._handler.rank, self._handler.world_size
        if nodes == 1:
            return self._open()
        store.set(f"here/{node}", _YES)
        host = self._handler.master_addr
        if node != 0:
            self._wait(store, {"opened": 0})
            store.set(f"reaches/{node}", _reaches(host, _port(store.get("opened"))))
            self._wait(store, {"port": 0})
            return _port(store.get("port"))
        self._wait(store, {f"here/{other}": other for other in range(nodes)})
        port = self._open()
        store.set("opened", str(port))
        others = {f"reaches/{other}": other for other in range(1, nodes)}
        self._wait(store, others)
        cut_off = RankSet.of(n for key, n in others.items() if store.get(key) != _YES.encode())
        line = f"restart {number}: the workers meet in a new store, on port {port} of {host}"
        if cut_off:
            self._server = None
            why = f"node {cut_off.fold()} cannot reach port {port}"
            line = f"restart {number}: {self._back_to_first(why)}"
            port = int(self._handler.master_port)
        store.set("port", str(port))
        self._log(line)
        return port

    def _open(self) -> int:
        host, port = self._handler.master_addr, self._handler.master_port
        self._server = None  # the one before: its workers have ended
        try:
            self._server = TCPStore(
                host, 0, None, True, timedelta(seconds=CONNECT_TIMEOUT_S), wait_for_workers=False
            )
        except (RuntimeError, OSError) as error:
            why = (str(error).splitlines() or [type(error).__name__])[0][:200]
            self._log(self._back_to_first(why))
            return int(port)
        return int(self._server.port)

    def _back_to_first(self, why: str) -> str:
        """The line on it; what dead workers have left there is removed, where torch can do that."""
        store: Any = getattr(self._store, "underlying_store", None)
        line = f"no new store for the workers at {self._handler.master_addr} ({why}): they meet in"
        try:
            for key in store.list_keys():
                if not key.startswith(f"{self._handler.run_id}/"):  # the launchers' own
                    store.delete_key(key)
        except (AttributeError, RuntimeError, OSError):
            return f"{line} the first one, and may find addresses of dead workers there"
        return f"{line} the first one"

    def _wait(self, store: Store, wanted: dict[str, int]) -> None:
        """Wait until nodes have set their keys.

        Args:
            wanted: node by key.

        Raises:
            RendezvousClosedError: one of them has ended, or this node ends.
            RendezvousTimeoutError: they have not, for as long as torch would wait.
        """
        end_s = time.monotonic() + self._handler.timeout.total_seconds()
        while wanted := {key: node for key, node in wanted.items() if not store.check([key])}:
            for node in wanted.values():
                if self._store is not None and self._store.check([_ended(node)]):
                    raise RendezvousClosedError(f"node {node} has ended")
            if time.monotonic() >= end_s:
                nodes = RankSet.of(wanted.values()).fold()
                raise RendezvousTimeoutError(f"node {nodes} has not come to a restart in time")
            if self._stopped.wait(_POLL_S):
                raise RendezvousClosedError("this node ends")


def _reaches(host: str, port: int) -> str:
    try:
        socket.create_connection((host, port), _REACH_S).close()
    except OSError:
        return _NO
    return _YES


def _port(text: bytes) -> int:
    port = whole_number(text.decode("ascii", "replace"))
    if port is None or not 0 < port <= _MAX_PORT:
        raise RendezvousConnectionError("node 0 has named no port for the workers")
    return port


def _ended(node: int) -> str:
    return f"relkit/ended/{node}"
