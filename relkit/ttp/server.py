"""The controller on sockets: one thread of the launcher that all ranks are linked to."""

from __future__ import annotations

import contextlib
import os
import queue
import selectors
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from relkit.net import handshake
from relkit.ttp.actions import Action, Kill, Log, Over, Send
from relkit.ttp.controller import Controller
from relkit.ttp.link import Endpoint, LineBuffer, tune
from relkit.ttp.messages import BadMessage, Finished, Heartbeat, Hello, Message, Stop, encode
from relkit.ttp.save_outcome import SaveOutcome

_CHUNK_BYTES = 1 << 16
_HANDSHAKE_S = 5.0
MAX_UNPROVEN = 256
# A process that was killed is seen by its link first; the kernel knows its signal right after.
_EXIT_S = 0.05


@dataclass
class _Peer:
    """One connection; it is a stranger until it has proven that it is not."""

    sock: socket.socket
    greeted: bytes
    until_s: float
    answered: bytes = b""
    proven: bool = False
    rank: int = -1
    finished: bool = False
    lines: LineBuffer = field(default_factory=LineBuffer)
    out: bytearray = field(default_factory=bytearray)


@dataclass(frozen=True, slots=True)
class Node:
    """What the server knows and may do on its own node.

    Args:
        pids: process of each rank that this node runs; may grow until ranks register.
        how_it_ended: words for a process that is gone ("was killed by SIGKILL"); None where it is
            not known.
        say: a line to the terminal.
        works: given a process and the time: it is alive, and may say nothing for now.
    """

    pids: Mapping[int, int]
    how_it_ended: Callable[[int], str | None]
    say: Callable[[str], None]
    works: Callable[[int, float], bool] = lambda _pid, _now_s: False


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
        self._controller, self._secret, self._attempt = controller, secret, attempt
        self._node = node
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._listener = socket.socket(family, socket.SOCK_STREAM)
        self._listener.bind((address, 0))
        self._listener.listen(1024)
        self._listener.setblocking(False)
        self.endpoint = Endpoint(address, self._listener.getsockname()[1])
        self._asked: queue.SimpleQueue[Callable[[float], Sequence[Action]]] = queue.SimpleQueue()
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._selector = selectors.DefaultSelector()
        self._peers: dict[int, _Peer] = {}
        self._ends: dict[int, int] = {}
        self._phases: dict[int, str] = {}
        self._closing = False
        self.unauthenticated = 0
        self.outcome: SaveOutcome | None = None
        self.over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="relkit-ttp", daemon=True)

    def start(self) -> None:
        """Begin to listen."""
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._wake_read, selectors.EVENT_READ)
        self._thread.start()

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
            # The name that this key had first.
            "strangers": self.unauthenticated,
        }

    def watch(self, pids: Mapping[int, int]) -> None:
        """Be told by the kernel when one of these processes ends.

        The end of its link is not enough: a process that it has forked may hold it open.

        Args:
            pids: rank -> process, of this node.
        """
        chosen = dict(pids)

        def begin(_: float) -> Sequence[Action]:
            for rank, pid in chosen.items():
                with contextlib.suppress(OSError):
                    handle = os.pidfd_open(pid)
                    self._ends[handle] = rank
                    self._selector.register(handle, selectors.EVENT_READ)
            return ()

        self._ask(begin)

    def lost(self, rank: int, reason: str) -> None:
        """A rank's process ended."""
        self._ask(lambda now_s: self._controller.lost(rank, reason, now_s))

    def hung(self, reason: str) -> None:
        """The monitor is sure that the job hangs."""
        self._ask(lambda now_s: self._controller.hung(reason, now_s))

    def stop(self, reason: str) -> None:
        """Have the job saved and ended."""
        self._ask(lambda now_s: self._controller.stop(reason, now_s))

    def close(self, timeout_s: float = 5.0) -> None:
        """End the thread and every link."""
        self._closing = True
        self._ask(lambda _: ())
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        else:
            self._shut()

    def _ask(self, what: Callable[[float], Sequence[Action]]) -> None:
        self._asked.put(what)
        with contextlib.suppress(OSError):
            os.write(self._wake_write, b"x")

    def _run(self) -> None:
        try:
            while not self._closing:
                self._turn()
        finally:
            self._shut()

    def _turn(self) -> None:
        wait_s = self._controller.wait_s(time.monotonic())
        for key, mask in self._selector.select(wait_s):
            if key.fileobj is self._listener:
                self._accept()
            elif key.fd == self._wake_read:
                os.read(self._wake_read, 4096)
            elif key.fd in self._ends:
                self._process_ended(key.fd)
            elif key.fd in self._peers:
                self._serve(self._peers[key.fd], mask)
        while not self._asked.empty():
            self._do(self._asked.get()(time.monotonic()))
        now_s = time.monotonic()
        for peer in [p for p in self._peers.values() if not p.proven and p.until_s < now_s]:
            self._drop(peer)
        # Last, so that nothing that has arrived counts as silence.
        self._do(self._controller.tick(now_s, self._excused(now_s)))

    def _excused(self, now_s: float) -> tuple[int, ...]:
        pids = self._node.pids
        silent = [rank for rank in self._controller.silent(now_s) if rank in pids]
        return tuple(rank for rank in silent if self._node.works(pids[rank], now_s))

    def _process_ended(self, handle: int) -> None:
        rank = self._ends.pop(handle)
        self._selector.unregister(handle)
        os.close(handle)
        reason = f"rank {rank} {self._end_of(rank)}"
        self._do(self._controller.lost(rank, reason, time.monotonic()))

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            sock, _ = self._listener.accept()
            sock.setblocking(False)
            unproven = sum(not peer.proven for peer in self._peers.values())
            if unproven >= MAX_UNPROVEN:
                sock.close()
                self.unauthenticated += 1
                return
            tune(sock)
            peer = _Peer(sock, handshake.greeting(), time.monotonic() + _HANDSHAKE_S)
            self._peers[sock.fileno()] = peer
            self._selector.register(sock, selectors.EVENT_READ)
            self._write(peer, peer.greeted)

    def _serve(self, peer: _Peer, mask: int) -> None:
        if mask & selectors.EVENT_WRITE:
            self._flush(peer)
        if not mask & selectors.EVENT_READ or peer.sock.fileno() not in self._peers:
            return
        try:
            data = peer.sock.recv(_CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._drop(peer)
        elif peer.proven:
            if not peer.finished:
                self._read(peer, data)
        else:
            self._prove(peer, data)

    def _prove(self, peer: _Peer, data: bytes) -> None:
        peer.answered += data
        if len(peer.answered) < handshake.ANSWER_BYTES:
            return
        answered = peer.answered[: handshake.ANSWER_BYTES]
        rest = peer.answered[handshake.ANSWER_BYTES :]
        accepted = handshake.check_answer(self._secret, self._attempt, peer.greeted, answered)
        if accepted is None:
            self._drop(peer)
            return
        peer.proven = True
        self._write(peer, accepted[1])
        if rest:
            self._read(peer, rest)

    def _read(self, peer: _Peer, data: bytes) -> None:
        try:
            for message in peer.lines.feed(data):
                self._check(peer, message)
                self._do(self._controller.received(message, time.monotonic()))
        except BadMessage as error:
            self._node.say(f"ttp: rank {peer.rank}: {error}")
            self._drop(peer)

    def _check(self, peer: _Peer, message: Message) -> None:
        """A link speaks for one rank, and for a rank one link speaks."""
        if isinstance(message, Stop) and peer.rank < 0:
            return
        if isinstance(message, Hello) and peer.rank < 0:
            if not 0 <= message.rank < self._controller.members.world_size == message.world_size:
                raise BadMessage(f"there is no rank {message.rank} of {message.world_size}")
            if any(other.rank == message.rank for other in self._peers.values()):
                raise BadMessage(f"rank {message.rank} is there already")
            peer.rank = message.rank
        elif getattr(message, "rank", -1) != peer.rank or peer.rank < 0:
            raise BadMessage(f"rank {peer.rank} speaks for another")
        if isinstance(message, Heartbeat):
            self._phases[message.rank] = message.phase

    def _drop(self, peer: _Peer) -> None:
        self._peers.pop(peer.sock.fileno(), None)
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(peer.sock)
        peer.sock.close()
        if not peer.proven:
            self.unauthenticated += 1
        elif peer.rank >= 0:
            reason = f"rank {peer.rank} {self._end_of(peer.rank)}"
            self._do(self._controller.lost(peer.rank, reason, time.monotonic()))

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
                chosen = set(action.ranks)
                for peer in [p for p in self._peers.values() if p.rank in chosen]:
                    self._write(peer, line)
                    if isinstance(action.message, Finished):
                        # It may come again, over another link.
                        peer.finished, peer.rank = True, -1
            elif isinstance(action, Kill):
                self._kill(action)
            elif isinstance(action, Log):
                self._node.say(f"ttp: {action.sentence}")
            elif isinstance(action, Over):
                self.outcome = action.outcome
                self.over.set()

    def _kill(self, action: Kill) -> None:
        pid = self._node.pids.get(action.rank)
        self._node.say(f"ttp: rank {action.rank} {action.reason}; it is taken out of the job")
        if pid is not None and self._node.how_it_ended(pid) is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        # On another node the end of its link is what tells it, should it ever wake up.
        for peer in [p for p in self._peers.values() if p.rank == action.rank]:
            self._drop(peer)

    def _write(self, peer: _Peer, data: bytes) -> None:
        peer.out += data
        self._flush(peer)

    def _flush(self, peer: _Peer) -> None:
        try:
            while peer.out:
                sent = peer.sock.send(peer.out)
                del peer.out[:sent]
        except BlockingIOError:
            pass
        except OSError:
            # Its end is read, and told, by the next turn.
            peer.out.clear()
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if peer.out else 0)
        with contextlib.suppress(KeyError, ValueError):
            self._selector.modify(peer.sock, events)

    def _shut(self) -> None:
        for peer in list(self._peers.values()):
            peer.sock.close()
        self._peers.clear()
        self._listener.close()
        self._selector.close()
        for descriptor in (*self._ends, self._wake_read, self._wake_write):
            with contextlib.suppress(OSError):
                os.close(descriptor)
