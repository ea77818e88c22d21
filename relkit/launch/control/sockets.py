"""The sockets of one launcher's links: ZeroMQ, encrypted and authenticated with CURVE.

All of it is used by one thread. What ends a connection, and what makes it again, is ZeroMQ's; a
peer that does not read loses what is sent to it, and holds up nobody.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import selectors
import socket
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import zmq
from zmq.utils import z85
from zmq.utils.monitor import recv_monitor_message

from relkit.errors import RelkitError
from relkit.launch.control.link_door import LinkDoor
from relkit.launch.job.exchange import MESSAGE_BYTES
from relkit.net.operator_secret import derive

_DOMAIN = b"relkit"
_RECONNECT_MS, _MAX_RECONNECT_MS = 200, 2000
# How long what was sent last may take to leave, ms.
_LINGER_MS = 500
_MAX_FRAME_BYTES = MESSAGE_BYTES + 4096
_BACKLOG = 128
# How long ZeroMQ may take to connect inside this process, s, and how many others may do so before.
_INSIDE_S, _STRANGERS = 0.5, 8
# pid, uid and gid of a peer.
_CREDENTIALS = struct.Struct("3i")
# What ZeroMQ begins with takes about ten.
_DESCRIPTORS = 32

Socket = zmq.Socket[bytes]


class CannotListen(RelkitError):
    """No endpoint at the address that the others would use."""

    next_step = "Check the address of this host on the way to the rendezvous endpoint."


@dataclass(frozen=True, slots=True)
class _Parent:
    """The connection to one that is, or may become, this node's parent.

    Args:
        socket: to it; events: tells when the connection has ended.
    """

    socket: Socket
    events: Socket


class LinkSockets:
    """One endpoint for those that report to this launcher, and a connection to each parent.

    Args:
        log: writes one line to the terminal.

    Raises:
        OSError: there are too few free descriptors.
    """

    def __init__(self, log: Callable[[str], None] = lambda _: None) -> None:
        _need_descriptors()
        self._context: zmq.Context[Socket] = zmq.Context()
        self._polled: list[Socket] = []
        # Not zmq.Poller: that ends the process where it polls more than the limit of open files.
        self._epoll = selectors.EpollSelector()
        self._wake = -1
        self._log = log
        self._key = b""
        self._door: LinkDoor | None = None
        self._router: Socket | None = None
        self._doorkeeper: Socket | None = None
        self._parents: dict[int, _Parent] = {}

    def listen(self, address: str, key: bytes) -> int:
        """Open the endpoint.

        Args:
            address: numeric, of this host; key: of the links.

        Returns:
            the port.

        Raises:
            CannotListen: it is no address of this host, or no port is free.
        """
        if not address:
            raise CannotListen("this host has no address on the way to the rendezvous host")
        self._key = key
        doorkeeper = self._doorkeeper = self._context.socket(zmq.REP)
        doorkeeper.bind("inproc://zeromq.zap.01")
        router = self._router = self._socket(zmq.ROUTER)
        router.curve_server = True
        router.curve_publickey, router.curve_secretkey = _pair(key, "links server")
        router.zap_domain = _DOMAIN
        # A connection that has ended does not come again from this side.
        router.setsockopt(zmq.RECONNECT_IVL, -1)
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        try:
            listener = socket.create_server((address, 0), family=family, backlog=_BACKLOG)
        except OSError as error:
            raise CannotListen(f"cannot listen at {address}: {error.strerror}") from error
        port: int = listener.getsockname()[1]
        self._door = LinkDoor(listener, self._open_inside, lambda line: self._log(f"links: {line}"))
        self._epoll.register(self._door.fileno(), selectors.EVENT_READ)
        self._poll(router)
        self._poll(doorkeeper)
        return port

    def wake_by(self, descriptor: int) -> None:
        """Waiting also ends once this can be read."""
        self._wake = descriptor
        self._epoll.register(descriptor, selectors.EVENT_READ)

    def connect(self, node: int, endpoint: tuple[str, int], key: bytes) -> None:
        """Connect to a parent; that goes on in the background, as often as need be."""
        if node in self._parents:
            return
        with contextlib.suppress(zmq.ZMQError):
            # Without a free descriptor, the next look tries again.
            self._connect(node, endpoint, key)

    def _connect(self, node: int, endpoint: tuple[str, int], key: bytes) -> None:
        address, port = endpoint
        dealer = self._socket(zmq.DEALER)
        dealer.curve_publickey, dealer.curve_secretkey = _pair(key, "links client")
        dealer.curve_serverkey, _ = _pair(key, "links server")
        dealer.setsockopt(zmq.RECONNECT_IVL, _RECONNECT_MS)
        dealer.setsockopt(zmq.RECONNECT_IVL_MAX, _MAX_RECONNECT_MS)
        # Nothing waits for a connection that there is not yet: it would be old by then.
        dealer.setsockopt(zmq.IMMEDIATE, 1)
        dealer.ipv6 = ":" in address
        events = dealer.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        dealer.connect(f"tcp://{_bracketed(address)}:{port}")
        self._parents[node] = _Parent(dealer, events)
        self._poll(dealer)
        self._poll(events)

    def send_up(self, node: int, frame: bytes) -> bool:
        """Send to a parent; False where that cannot be now."""
        parent = self._parents.get(node)
        return parent is not None and _send(parent.socket, [frame])

    def send_down(self, child: bytes, frame: bytes) -> None:
        """Send to somebody who has sent something; to one that has gone, nothing is sent."""
        if self._router is not None:
            _send(self._router, [child, frame])

    def wait(self, timeout_s: float) -> None:
        """Until something has come, or time is up; meanwhile, the door is served."""
        until_s = time.monotonic() + timeout_s
        while True:
            now_s = time.monotonic()
            # ZeroMQ's descriptors tell only of what is new since this was asked.
            has_come = any(int(each.getsockopt(zmq.EVENTS)) & zmq.POLLIN for each in self._polled)
            waits_s = [0.0] if has_come else [until_s - now_s]
            if self._door is not None and (due_s := self._door.wait_s(now_s)) is not None:
                waits_s.append(due_s)
            come = self._epoll.select(max(0.0, min(waits_s)))
            if self._door is not None:
                self._door.turn()
            is_woken = any(key.fd == self._wake for key, _ in come)
            if has_come or is_woken or time.monotonic() >= until_s:
                return

    def from_below(self) -> Iterator[tuple[bytes, bytes]]:
        """Who has sent, and what; all that has come."""
        self._admit()
        while self._router is not None and self._router.poll(0):
            parts = self._router.recv_multipart(zmq.NOBLOCK)
            if len(parts) == 2:
                yield parts[0], parts[1]

    def from_above(self) -> Iterator[bytes]:
        """What parents have sent; all that has come."""
        for parent in self._parents.values():
            while parent.socket.poll(0):
                parts = parent.socket.recv_multipart(zmq.NOBLOCK)
                if len(parts) == 1:
                    yield parts[0]

    def disconnected(self) -> Iterator[int]:
        """Parents whose connection has ended."""
        for node, parent in self._parents.items():
            while parent.events.poll(0):
                recv_monitor_message(parent.events, zmq.NOBLOCK)
                yield node

    def close(self) -> None:
        """Close everything; what was sent last may leave for a moment."""
        for parent in self._parents.values():
            parent.socket.disable_monitor()
        # The doorkeeper as well: the router's end waits for that of its questions.
        for each in (self._router, self._doorkeeper):
            if each is not None:
                each.close()
        if self._door is not None:
            self._door.finish(_LINGER_MS / 1e3)
            self._door.close()
        self._epoll.close()
        self._context.destroy(linger=_LINGER_MS)

    def _poll(self, polled: Socket) -> None:
        self._polled.append(polled)
        self._epoll.register(int(polled.getsockopt(zmq.FD)), selectors.EVENT_READ)

    def _socket(self, kind: int) -> Socket:
        made = self._context.socket(kind)
        made.setsockopt(zmq.LINGER, _LINGER_MS)
        made.setsockopt(zmq.MAXMSGSIZE, _MAX_FRAME_BYTES)
        return made

    def _open_inside(self) -> socket.socket:
        """A connection to the router, which makes it: where ZeroMQ accepts, it ends the process
        once that has no descriptor left.

        Raises:
            OSError: that is not possible now.
        """
        router, name = self._router, f"relkit-links-{secrets.token_hex(16)}"
        assert router is not None
        with socket.socket(socket.AF_UNIX) as listener:
            # No file: it is there for this moment only.
            listener.bind(f"\0{name}")
            listener.listen()
            listener.settimeout(_INSIDE_S)
            try:
                router.connect(f"ipc://@{name}")
                return _accept_own(listener)
            except zmq.ZMQError as error:
                raise OSError(error.errno, error.strerror) from error
            except OSError:
                with contextlib.suppress(zmq.ZMQError):
                    router.disconnect(f"ipc://@{name}")
                raise

    def _admit(self) -> None:
        """Let those in that have the key, https://rfc.zeromq.org/spec/27."""
        if self._doorkeeper is None:
            return
        public, _ = _pair(self._key, "links client")
        while self._doorkeeper.poll(0):
            asked = self._doorkeeper.recv_multipart(zmq.NOBLOCK)
            is_member = (
                len(asked) == 7
                and asked[2:6:3] == [_DOMAIN, b"CURVE"]
                and asked[6] == z85.decode(public)
            )
            answer = (b"200", b"OK") if is_member else (b"400", b"not of this job")
            number = asked[1] if len(asked) > 1 else b""
            self._doorkeeper.send_multipart([b"1.0", number, *answer, b"", b""])


def _need_descriptors() -> None:
    """ZeroMQ ends the process where there are none for what it begins with.

    Raises:
        OSError: there are too few.
    """
    with contextlib.ExitStack() as taken:
        for _ in range(_DESCRIPTORS):
            taken.callback(os.close, os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))


def _accept_own(listener: socket.socket) -> socket.socket:
    """The connection that this process has made; others, of this host, are closed.

    Raises:
        OSError: there was none in time.
    """
    for _ in range(_STRANGERS):
        connection, _ = listener.accept()
        credentials = connection.getsockopt(
            socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size
        )
        if _CREDENTIALS.unpack(credentials)[0] == os.getpid():
            return connection
        connection.close()
    raise ConnectionRefusedError("others come first")


def _pair(key: bytes, purpose: str) -> tuple[bytes, bytes]:
    """Public and secret key of CURVE, as text."""
    secret = z85.encode(derive(key, purpose))
    return zmq.curve_public(secret), secret


def _send(sender: Socket, parts: list[bytes]) -> bool:
    try:
        sender.send_multipart(parts, zmq.NOBLOCK)
    except zmq.ZMQError:
        return False
    return True


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address
