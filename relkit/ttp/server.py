"""The controller on sockets: one thread of the launcher that all ranks are linked to."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from relkit.net import handshake
from relkit.net.call_queue import CallQueue
from relkit.net.gate import Gate
from relkit.ttp.actions import Action, Kill, Log, Over, Send
from relkit.ttp.controller import Controller
from relkit.ttp.link import Endpoint
from relkit.ttp.messages import BadMessage, Finished, Heartbeat, encode
from relkit.ttp.rank_links import RankLink, RankLinks
from relkit.ttp.save_outcome import SaveOutcome

# Linux cuts it to net.core.somaxconn.
_BACKLOG = 4096
# A process that was killed is seen by its link first; the kernel knows its signal right after.
_EXIT_S = 0.05
# Of thousands of ranks one speaks at any time: silence is looked for this often at most.
_TICK_S = 0.02


@dataclass(frozen=True, slots=True)
class Node:
    """What the server knows and may do on its own node.

    Args:
        pids: process of each rank that this node runs; may grow until ranks register.
        how_it_ended: words for a process that is gone ("was killed by SIGKILL"); None where it is
            not known.
        log: writes one line to the terminal.
        excuses: given a process and the time: it is alive, and may be silent for now.
    """

    pids: Mapping[int, int]
    how_it_ended: Callable[[int], str | None]
    log: Callable[[str], None]
    excuses: Callable[[int, float], bool] = lambda _pid, _now_s: False


class Server:
    """Runs a Controller.

    Args:
        controller: the state machine.
        secret: of the job; attempt: of the job.
        address: to listen on: loopback for a job on one node.
        node: see Node.
    """

    def __init__(
        self,
        controller: Controller,
        *,
        secret: bytes,
        attempt: int,
        address: str,
        node: Node,
    ) -> None:
        self._controller, self._node = controller, node
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        listener = socket.create_server((address, 0), family=family, backlog=_BACKLOG)
        self.endpoint = Endpoint(address, listener.getsockname()[1])
        self._selector = selectors.DefaultSelector()
        self._calls: CallQueue[Sequence[Action]] = CallQueue(self._selector)
        self._links = RankLinks(self._selector, controller.members.world_size)
        self._ends = ProcessEnds(self._selector)
        self._gate = Gate(
            listener,
            self._selector,
            partial(handshake.check_answer, secret, attempt),
            lambda _, sock: self._links.add(sock),
            log=lambda sentence: node.log(f"ttp: {sentence}"),
        )
        self._phases: dict[int, str] = {}
        self._tick_s = 0.0
        self._closing = False
        self.outcome: SaveOutcome | None = None
        self.over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="relkit-ttp", daemon=True)

    def start(self) -> None:
        """Begin to serve."""
        self._thread.start()

    @property
    def unauthenticated(self) -> int:
        """Connections that were dropped because they did not prove that they know the secret."""
        return self._gate.unauthenticated

    @property
    def busy(self) -> bool:
        """A fault, or a request to stop, has begun."""
        return self._controller.busy

    def status(self) -> dict[str, object]:
        """Where the job stands, as plain JSON; read without a lock, for people."""
        led = self._controller
        steps = dict(led.steps)
        ranks = [
            {"rank": rank, "step": steps.get(rank, -1), "phase": self._phases.get(rank, "")}
            for rank in led.living
        ]
        return {
            "phase": led.phase.value,
            "epoch": led.epoch,
            "ranks": ranks,
            "dead": sorted(led.dead),
            "unauthenticated_connections": self.unauthenticated,
        }

    def watch(self, pids: Mapping[int, int]) -> None:
        """Be told by the kernel when one of these processes ends.

        Args:
            pids: rank -> process, of this node.
        """
        chosen = dict(pids)

        def begin(_: float) -> Sequence[Action]:
            self._ends.watch(chosen)
            return ()

        self._calls.put(begin)

    def lost(self, rank: int, reason: str) -> None:
        """A rank's process ended."""
        self._calls.put(lambda now_s: self._controller.lost(rank, reason, now_s))

    def hung(self, reason: str) -> None:
        """The monitor is sure that the job hangs."""
        self._calls.put(lambda now_s: self._controller.hung(reason, now_s))

    def stop(self, reason: str) -> None:
        """Have the job saved and ended."""
        self._calls.put(lambda now_s: self._controller.stop(reason, now_s))

    def close(self, timeout_s: float = 5.0) -> None:
        """End the thread and every link."""
        self._closing = True
        self._calls.put(lambda _: ())
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        else:
            self._shut()

    def _run(self) -> None:
        try:
            while not self._closing:
                self._turn()
        finally:
            self._shut()

    def _turn(self) -> None:
        now_s = time.monotonic()
        waits = (self._controller.wait_s(now_s), self._gate.wait_s(now_s))
        for key, mask in self._selector.select(min(wait for wait in waits if wait is not None)):
            if (link := self._links.at(key.fd)) is not None:
                self._serve(link, mask)
            elif self._gate.owns(key.fd):
                self._gate.serve(key.fd)
            elif self._calls.owns(key.fd):
                self._calls.drain()
            elif self._ends.owns(key.fd):
                self._process_ended(key.fd)
        for call in self._calls.take():
            self._do(call(time.monotonic()))
        now_s = time.monotonic()
        self._gate.tick(now_s)
        # Last, so that nothing that has arrived counts as silence.
        if now_s >= self._tick_s or self._controller.wait_s(now_s) <= 0:
            self._tick_s = now_s + _TICK_S
            self._do(self._controller.tick(now_s, self._excused(now_s)))

    def _excused(self, now_s: float) -> tuple[int, ...]:
        pids = self._node.pids
        silent = [rank for rank in self._controller.silent(now_s) if rank in pids]
        return tuple(rank for rank in silent if self._node.excuses(pids[rank], now_s))

    def _process_ended(self, handle: int) -> None:
        rank = self._ends.take(handle)
        self._lost(rank)

    def _lost(self, rank: int) -> None:
        reason = f"rank {rank} {self._end_of(rank)}"
        self._do(self._controller.lost(rank, reason, time.monotonic()))

    def _serve(self, link: RankLink, mask: int) -> None:
        if mask & selectors.EVENT_WRITE:
            self._links.flush(link)
        if not mask & selectors.EVENT_READ:
            return
        messages = self._links.receive(link)
        if messages is None:
            self._drop(link)
            return
        try:
            for message in messages:
                if isinstance(message, Heartbeat):
                    self._phases[message.rank] = message.phase
                self._do(self._controller.received(message, time.monotonic()))
        except BadMessage as error:
            self._node.log(f"ttp: rank {link.rank}: {error}")
            self._drop(link)

    def _drop(self, link: RankLink) -> None:
        self._links.drop(link)
        if link.rank >= 0:
            self._lost(link.rank)

    def _end_of(self, rank: int) -> str:
        pid = self._node.pids.get(rank)
        if pid is None:
            return "lost its link to the controller"
        until_s = time.monotonic() + _EXIT_S
        while (how := self._node.how_it_ended(pid)) is None and time.monotonic() < until_s:
            time.sleep(0.001)
        return f"(pid {pid}) {how or 'lost its link to the controller'}"

    def _do(self, actions: Sequence[Action]) -> None:
        for action in actions:
            if isinstance(action, Send):
                line = encode(action.message)
                for link in list(self._links.of_ranks(action.ranks)):
                    self._links.write(link, line)
                    if isinstance(action.message, Finished):
                        self._links.finish(link)
            elif isinstance(action, Kill):
                self._kill(action)
            elif isinstance(action, Log):
                self._node.log(f"ttp: {action.sentence}")
            elif isinstance(action, Over):
                self.outcome = action.outcome
                self.over.set()

    def _kill(self, action: Kill) -> None:
        pid = self._node.pids.get(action.rank)
        self._node.log(f"ttp: rank {action.rank} {action.reason}; it is taken out of the job")
        if pid is not None and self._node.how_it_ended(pid) is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        # On another node the end of its link is what tells it, should it ever wake up.
        for link in list(self._links.of_ranks((action.rank,))):
            self._drop(link)

    def _shut(self) -> None:
        self._links.close()
        self._gate.close()
        self._ends.close()
        self._calls.close()
        self._selector.close()


class ProcessEnds:
    """Descriptors of processes, in a selector.

    Args:
        selector: of the thread that serves them.
    """

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self._selector = selector
        self._ranks: dict[int, int] = {}

    def watch(self, pids: Mapping[int, int]) -> None:
        """Watch these as well: rank -> process; one that is gone already is left out."""
        for rank, pid in pids.items():
            with contextlib.suppress(OSError):
                handle = os.pidfd_open(pid)
                self._ranks[handle] = rank
                self._selector.register(handle, selectors.EVENT_READ)

    def owns(self, descriptor: int) -> bool:
        """Whether `take` is for an event of this descriptor."""
        return descriptor in self._ranks

    def take(self, descriptor: int) -> int:
        """The rank whose process has ended, which is no longer watched."""
        rank = self._ranks.pop(descriptor)
        self._selector.unregister(descriptor)
        os.close(descriptor)
        return rank

    def close(self) -> None:
        """Watch none any more."""
        for handle in self._ranks:
            with contextlib.suppress(OSError):
                os.close(handle)
        self._ranks.clear()
