"""A listener for one round: only peers that know the run's secret are accepted."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time

from relkit.net import handshake
from relkit.net.gate import Gate
from relkit.net.handshake import Label
from relkit.process.interruptible_wait import wait_for_end

_MAX_PENDING = 64
# The kernel takes no wait of more than some weeks.
_LONGEST_WAIT_S = 3600.0


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
        self._round_number, self._secret = round_number, secret
        listening = socket.create_server((address, 0), family=family, backlog=128)
        self.address = address
        self.port: int = listening.getsockname()[1]
        self._authenticated = _Authenticated()
        self._until_s = time.monotonic() + lifetime_s
        self._wake, self._woken = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._gate = Gate(
            listening, self._selector, self._check, self._admit, max_pending=_MAX_PENDING
        )
        self._thread = threading.Thread(
            target=self._run, name=f"relkit-listen-{round_number}", daemon=True
        )
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._thread.start()

    @property
    def unauthenticated(self) -> int:
        """Connections that were dropped because they did not prove that they know the secret."""
        return self._gate.unauthenticated

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
            wait_for_end(self._thread)
        self._wake.close()

    def _run(self) -> None:
        try:
            while (now_s := time.monotonic()) < self._until_s:
                self._gate.tick(now_s)
                wait_s = self._gate.wait_s(now_s)
                left_s = min(self._until_s - now_s, _LONGEST_WAIT_S)
                for key, _ in self._selector.select(
                    left_s if wait_s is None else min(wait_s, left_s)
                ):
                    if key.fileobj is self._woken:
                        return
                    self._gate.serve(key.fd)
        finally:
            self._shut()

    def _check(self, greeted: bytes, answered: bytes) -> tuple[Label, bytes] | None:
        accepted = handshake.check_answer(self._secret, self._round_number, greeted, answered)
        return None if accepted is None or accepted[0] in self._authenticated else accepted

    def _admit(self, label: Label, connection: socket.socket) -> None:
        connection.setblocking(True)
        self._authenticated.add(label, connection)

    def _shut(self) -> None:
        # A connection that is still silent at the end of the round counts as well.
        self._gate.close()
        self._selector.close()
        self._woken.close()
        self._authenticated.close()
