"""A listener for one round: only peers that know the run's secret are accepted."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time
from dataclasses import dataclass, field
from functools import partial

from relkit.net import handshake
from relkit.net.handshake import Label
from relkit.net.interface import own_address

# The handshake takes one round trip; a slower peer occupies a slot that others need.
_HANDSHAKE_S = 5.0
_MAX_PENDING = 64


@dataclass(slots=True)
class _Pending:
    """A connection that is not authenticated yet."""

    connection: socket.socket
    greeted: bytes
    until_s: float
    answered: bytearray = field(default_factory=bytearray)


class _Authenticated:
    """Authenticated connections by label: the listener's thread adds them, callers take them."""

    def __init__(self) -> None:
        self._ready: dict[Label, socket.socket] = {}
        self._taken: list[socket.socket] = []
        self._changed = threading.Condition()
        self._closed = False

    def __contains__(self, label: Label) -> bool:
        return label in self._ready

    def add(self, label: Label, connection: socket.socket) -> None:
        with self._changed:
            self._ready[label] = connection
            self._changed.notify_all()

    def take(self, label: Label, timeout_s: float) -> socket.socket:
        with self._changed:
            arrived = self._changed.wait_for(
                lambda: label in self._ready or self._closed, max(timeout_s, 0)
            )
            if not arrived or label not in self._ready:
                raise TimeoutError("the peer did not connect in time")
            connection = self._ready.pop(label)
            # Kept so that closing the round also ends a call that the taker is blocked in.
            self._taken = [taken for taken in self._taken if taken.fileno() >= 0]
            self._taken.append(connection)
            return connection

    def close(self) -> None:
        with self._changed:
            self._closed = True
            for connection in self._ready.values():
                connection.close()
            for connection in self._taken:
                # Shut down, not closed: the descriptor is the taker's, and may be in use.
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
            self._ready.clear()
            self._changed.notify_all()


class Listener:
    """Bound to one address and a free port; lives until `close`, or for `lifetime_s`.

    Args:
        address: numeric, the one that the peer will use; never a wildcard.
        round_number, secret: the handshake's parameters.
        lifetime_s: it is closed after this time in any case.

    Raises:
        OSError: the address is not this host's.
    """

    def __init__(
        self, address: str, round_number: int, secret: bytes, *, lifetime_s: float
    ) -> None:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        if socket.inet_pton(family, address).strip(b"\0") == b"":
            raise OSError(f"a listener binds one address, not {address}")
        self._check = partial(handshake.check_answer, secret, round_number)
        self._socket = socket.create_server((address, 0), family=family, backlog=128)
        self._socket.setblocking(False)
        self.address = address
        self.port: int = self._socket.getsockname()[1]
        self.unauthenticated = 0
        self._pending: dict[int, _Pending] = {}
        self._authenticated = _Authenticated()
        self._until_s = time.monotonic() + lifetime_s
        self._wake, self._woken = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._thread = threading.Thread(
            target=self._run, name=f"relkit-listen-{round_number}", daemon=True
        )
        self._selector.register(self._socket, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._thread.start()

    @property
    def over(self) -> bool:
        """Its lifetime has ended; `close` only tidies up."""
        return not self._thread.is_alive()

    def take(self, label: Label, timeout_s: float) -> socket.socket:
        """The authenticated connection with this label; blocking, and the caller must close it.

        Raises:
            TimeoutError: it did not come in time, or the round is over.
        """
        return self._authenticated.take(label, timeout_s)

    def close(self) -> None:
        """Stop listening, drop every connection of the round, and end the thread."""
        with contextlib.suppress(OSError):
            self._wake.send(b"x")
        if threading.current_thread() is not self._thread:
            self._thread.join()
        self._wake.close()

    def _run(self) -> None:
        try:
            while True:
                now_s = time.monotonic()
                if now_s >= self._until_s:
                    return
                self._expire(now_s)
                ends = [peer.until_s for peer in self._pending.values()]
                for key, _ in self._selector.select(min([self._until_s, *ends]) - now_s):
                    if key.fileobj is self._woken:
                        return
                    if key.fileobj is self._socket:
                        self._greet()
                    else:
                        self._read(self._pending[key.fd])
        finally:
            self._shut()

    def _greet(self) -> None:
        try:
            connection, _ = self._socket.accept()
        except OSError:
            return
        if len(self._pending) >= _MAX_PENDING:
            self._drop(next(iter(self._pending.values())))
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer = _Pending(connection, handshake.greeting(), time.monotonic() + _HANDSHAKE_S)
        self._pending[connection.fileno()] = peer
        self._selector.register(connection, selectors.EVENT_READ)
        try:
            connection.send(peer.greeted)
        except OSError:
            self._drop(peer)

    def _read(self, peer: _Pending) -> None:
        try:
            received = peer.connection.recv(handshake.ANSWER_BYTES - len(peer.answered))
        except BlockingIOError:
            return
        except OSError:
            received = b""
        peer.answered += received
        if not received:
            self._drop(peer)
        elif len(peer.answered) == handshake.ANSWER_BYTES:
            self._authenticate(peer)

    def _authenticate(self, peer: _Pending) -> None:
        accepted = self._check(peer.greeted, bytes(peer.answered))
        if accepted is None or accepted[0] in self._authenticated:
            self._drop(peer)
            return
        label, confirmation = accepted
        try:
            peer.connection.send(confirmation)
            peer.connection.setblocking(True)
        except OSError:
            self._drop(peer)
            return
        self._forget(peer)
        self._authenticated.add(label, peer.connection)

    def _expire(self, now_s: float) -> None:
        for peer in [peer for peer in self._pending.values() if peer.until_s <= now_s]:
            self._drop(peer)

    def _forget(self, peer: _Pending) -> None:
        self._selector.unregister(peer.connection)
        del self._pending[peer.connection.fileno()]

    def _drop(self, peer: _Pending) -> None:
        self.unauthenticated += 1
        self._forget(peer)
        peer.connection.close()

    def _shut(self) -> None:
        self._selector.close()
        self._socket.close()
        self._woken.close()
        # A connection that is still silent at the end of the round counts as well.
        self.unauthenticated += len(self._pending)
        for peer in self._pending.values():
            peer.connection.close()
        self._authenticated.close()


def connect_authenticated(
    address: str, port: int, round_number: int, secret: bytes, label: Label, timeout_s: float
) -> socket.socket:
    """Connect to a listener; the connection is blocking, and sends small messages at once.

    Raises:
        OSError: refused, reset, or silent for `timeout_s`.
        NoRoute: the routing table has no route to the address.
        PermissionError: one of the two ends does not know the secret.
    """
    until_s = time.monotonic() + timeout_s
    connection = _connect(address, port, timeout_s)
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        greeted = _exactly(connection, handshake.GREETING_BYTES, until_s)
        if not greeted.startswith(handshake.BANNER):
            raise PermissionError("something other than relkit answers on the port")
        answered = handshake.answer(secret, round_number, greeted, label)
        connection.sendall(answered)
        try:
            confirmation = _exactly(connection, handshake.CONFIRMATION_BYTES, until_s)
        except ConnectionError:
            raise PermissionError("the other end rejected the handshake") from None
        if not handshake.check_confirmation(secret, round_number, greeted, answered, confirmation):
            raise PermissionError("the other end does not know the run's secret")
        connection.settimeout(None)
    except OSError:
        connection.close()
        raise
    return connection


def _connect(address: str, port: int, timeout_s: float) -> socket.socket:
    try:
        return socket.create_connection((address, port), timeout_s)
    except (ConnectionError, TimeoutError):
        raise
    except OSError:
        # Only the routing table knows whether a route is missing or the peer does not answer.
        own_address(address)
        raise


def _exactly(connection: socket.socket, size: int, until_s: float) -> bytes:
    received = bytearray()
    while len(received) < size:
        connection.settimeout(max(until_s - time.monotonic(), 0.001))
        part = connection.recv(size - len(received))
        if not part:
            raise ConnectionResetError("closed during the handshake")
        received += part
    return bytes(received)
