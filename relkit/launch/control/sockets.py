"""The sockets of one launcher's links: ZeroMQ, encrypted and authenticated with CURVE.

All of it is used by one thread. What ends a connection, and what makes it again, is ZeroMQ's; a
peer that does not read loses what is sent to it, and holds up nobody.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import zmq
from zmq.utils import z85
from zmq.utils.monitor import recv_monitor_message

from relkit.errors import RelkitError
from relkit.launch.job.exchange import MESSAGE_BYTES
from relkit.net.operator_secret import derive

_DOMAIN = b"relkit"
_RECONNECT_MS, _MAX_RECONNECT_MS = 200, 2000
# How long what was sent last may take to leave, ms.
_LINGER_MS = 500
_MAX_FRAME_BYTES = MESSAGE_BYTES + 4096

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
    """One endpoint for those that report to this launcher, and a connection to each parent."""

    def __init__(self) -> None:
        self._context: zmq.Context[Socket] = zmq.Context()
        self._poller = zmq.Poller()
        self._key = b""
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
        router.ipv6 = ":" in address
        try:
            port = router.bind_to_random_port(f"tcp://{_bracketed(address)}")
        except zmq.ZMQError as error:
            raise CannotListen(f"cannot listen at {address}: {error.strerror}") from error
        self._poller.register(router, zmq.POLLIN)
        self._poller.register(doorkeeper, zmq.POLLIN)
        return int(port)

    def wake_by(self, descriptor: int) -> None:
        """Waiting also ends once this can be read."""
        self._poller.register(descriptor, zmq.POLLIN)

    def connect(self, node: int, endpoint: tuple[str, int], key: bytes) -> None:
        """Connect to a parent; that goes on in the background, as often as need be."""
        if node in self._parents:
            return
        address, port = endpoint
        socket = self._socket(zmq.DEALER)
        socket.curve_publickey, socket.curve_secretkey = _pair(key, "links client")
        socket.curve_serverkey, _ = _pair(key, "links server")
        socket.setsockopt(zmq.RECONNECT_IVL, _RECONNECT_MS)
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, _MAX_RECONNECT_MS)
        # Nothing waits for a connection that there is not yet: it would be old by then.
        socket.setsockopt(zmq.IMMEDIATE, 1)
        socket.ipv6 = ":" in address
        events = socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        socket.connect(f"tcp://{_bracketed(address)}:{port}")
        self._parents[node] = _Parent(socket, events)
        self._poller.register(socket, zmq.POLLIN)
        self._poller.register(events, zmq.POLLIN)

    def send_up(self, node: int, frame: bytes) -> bool:
        """Send to a parent; False where that cannot be now."""
        parent = self._parents.get(node)
        return parent is not None and _send(parent.socket, [frame])

    def send_down(self, child: bytes, frame: bytes) -> None:
        """Send to somebody who has sent something; to one that has gone, nothing is sent."""
        if self._router is not None:
            _send(self._router, [child, frame])

    def wait(self, timeout_s: float) -> None:
        """Until something has come, or time is up."""
        self._poller.poll(math.ceil(timeout_s * 1e3))

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
        self._context.destroy(linger=_LINGER_MS)

    def _socket(self, kind: int) -> Socket:
        socket = self._context.socket(kind)
        socket.setsockopt(zmq.LINGER, _LINGER_MS)
        socket.setsockopt(zmq.MAXMSGSIZE, _MAX_FRAME_BYTES)
        return socket

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


def _pair(key: bytes, purpose: str) -> tuple[bytes, bytes]:
    """Public and secret key of CURVE, as text."""
    secret = z85.encode(derive(key, purpose))
    return zmq.curve_public(secret), secret


def _send(socket: Socket, parts: list[bytes]) -> bool:
    try:
        socket.send_multipart(parts, zmq.NOBLOCK)
    except zmq.ZMQError:
        return False
    return True


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address
