"""A listener for one round: lets in who proves the run's secret, counts and drops the rest."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time
from dataclasses import dataclass, field

from relkit.net import handshake
from relkit.net.handshake import Label

# A peer proves itself in one round trip; whoever takes longer holds a slot that others need.
_PROOF_S = 5.0
_MAX_PENDING = 64


@dataclass(slots=True)
class _Pending:
    """A connection that has not proved itself yet."""

    connection: socket.socket
    greeted: bytes
    until_s: float
    answered: bytearray = field(default_factory=bytearray)


class Listener:
    """Bound to one address and a free port; lives until `close`, or for `lifetime_s`.

    Args:
        address: numeric, the one that the peer will use; never a wildcard.
        round_number, secret: what a connection must prove.
        lifetime_s: it is closed after this time, whatever happens.

    Raises:
        OSError: the address is not this host's.
    """

    def __init__(
        self, address: str, round_number: int, secret: bytes, *, lifetime_s: float
    ) -> None:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        if socket.inet_pton(family, address).strip(b"\0") == b"":
            raise OSError(f"a listener binds one address, not {address}")
        self._secret, self._round = secret, round_number
        self._socket = socket.create_server((address, 0), family=family, backlog=128)
        self._socket.setblocking(False)
        self.address = address
        self.port: int = self._socket.getsockname()[1]
        self.strangers = 0
        self._pending: dict[int, _Pending] = {}
        self._ready: dict[Label, socket.socket] = {}
        self._taken: list[socket.socket] = []
        self._changed = threading.Condition()
        self._closed = False
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
        """The proven connection with this label; it is blocking, and the caller's to close.

        Raises:
            TimeoutError: it did not come in time, or the round is over.
        """
        with self._changed:
            come = self._changed.wait_for(
                lambda: label in self._ready or self._closed, max(timeout_s, 0)
            )
            if not come or label not in self._ready:
                raise TimeoutError("the peer did not connect in time")
            connection = self._ready.pop(label)
            # Kept so that closing the round also ends what the caller is blocked in.
            self._taken = [one for one in self._taken if one.fileno() >= 0]
            self._taken.append(connection)
            return connection

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
                ends = [one.until_s for one in self._pending.values()]
                for key, _ in self._selector.select(min([self._until_s, *ends]) - now_s):
                    if key.fileobj is self._woken:
                        return
                    if key.fileobj is self._socket:
                        self._greet()
                    else:
                        self._hear(self._pending[key.fd])
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
        one = _Pending(connection, handshake.greeting(), time.monotonic() + _PROOF_S)
        self._pending[connection.fileno()] = one
        self._selector.register(connection, selectors.EVENT_READ)
        try:
            connection.send(one.greeted)
        except OSError:
            self._drop(one)

    def _hear(self, one: _Pending) -> None:
        try:
            heard = one.connection.recv(handshake.ANSWER_BYTES - len(one.answered))
        except BlockingIOError:
            return
        except OSError:
            heard = b""
        one.answered += heard
        if not heard:
            self._drop(one)
        elif len(one.answered) == handshake.ANSWER_BYTES:
            self._judge(one)

    def _judge(self, one: _Pending) -> None:
        proven = handshake.check_answer(self._secret, self._round, one.greeted, bytes(one.answered))
        if proven is None or proven[0] in self._ready:
            self._drop(one)
            return
        label, own = proven
        try:
            one.connection.send(own)
            one.connection.setblocking(True)
        except OSError:
            self._drop(one)
            return
        self._forget(one)
        with self._changed:
            self._ready[label] = one.connection
            self._changed.notify_all()

    def _expire(self, now_s: float) -> None:
        for one in [one for one in self._pending.values() if one.until_s <= now_s]:
            self._drop(one)

    def _forget(self, one: _Pending) -> None:
        self._selector.unregister(one.connection)
        del self._pending[one.connection.fileno()]

    def _drop(self, one: _Pending) -> None:
        self.strangers += 1
        self._forget(one)
        one.connection.close()

    def _shut(self) -> None:
        self._selector.close()
        self._socket.close()
        self._woken.close()
        # Whoever has not said a word until the end of the round is a stranger, too.
        self.strangers += len(self._pending)
        for one in self._pending.values():
            one.connection.close()
        with self._changed:
            self._closed = True
            for connection in self._ready.values():
                connection.close()
            for connection in self._taken:
                # Shut, not closed: the descriptor is the taker's, and may be in use just now.
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
            self._ready.clear()
            self._changed.notify_all()


def knock(
    address: str, port: int, round_number: int, secret: bytes, label: Label, timeout_s: float
) -> socket.socket:
    """Connect to a listener and prove the secret; the connection is blocking and undelayed.

    Raises:
        OSError: refused, reset, or silent for `timeout_s`; PermissionError where the other end
            does not know the secret (or does not believe that we do).
    """
    until_s = time.monotonic() + timeout_s
    connection = socket.create_connection((address, port), timeout_s)
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        greeted = _exactly(connection, handshake.GREETING_BYTES, until_s)
        if not greeted.startswith(handshake.BANNER):
            raise PermissionError("something other than relkit answers on the port")
        answered = handshake.answer(secret, round_number, greeted, label)
        connection.sendall(answered)
        try:
            own = _exactly(connection, handshake.PROOF_BYTES, until_s)
        except ConnectionError:
            raise PermissionError("the other end did not accept our proof") from None
        if not handshake.check_proof(secret, round_number, greeted, answered, own):
            raise PermissionError("the other end does not know the run's secret")
        connection.settimeout(None)
    except OSError:
        connection.close()
        raise
    return connection


def _exactly(connection: socket.socket, size: int, until_s: float) -> bytes:
    got = bytearray()
    while len(got) < size:
        connection.settimeout(max(until_s - time.monotonic(), 0.001))
        part = connection.recv(size - len(got))
        if not part:
            raise ConnectionResetError("closed before the proof")
        got += part
    return bytes(got)
