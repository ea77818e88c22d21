"""The door of a listener: nobody who has not proven who they are keeps the others out.

A connection that has not authenticated itself yet has one of a bounded number of places. Where all
are taken, a new one gets the place of the oldest from the origin that holds the most; one that is
slow loses its place in any case. A connection that loses its place is reset, and an honest end
tries again.

Without a free descriptor nothing is accepted for a moment, instead of asking again at once.
"""

from __future__ import annotations

import contextlib
import ipaddress
import resource
import selectors
import socket
import struct
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

HANDSHAKE_S = 5.0
# Left to the rest of the process: files, pipes of children, the rendezvous store.
RESERVED_DESCRIPTORS = 32
PAUSE_S = 0.2
# A round trip is over by then: one that has not answered gives way to those that wait outside.
_GRACE_S = 0.5
_RESET = struct.pack("ii", 1, 0)


@dataclass(slots=True)
class Arrival:
    """A connection that is not authenticated yet.

    Args:
        connection: not blocking; origin: see `_origin`; since_s: when it came, monotonic clock.
    """

    connection: socket.socket
    origin: str
    since_s: float


A = TypeVar("A", bound=Arrival)


class Door(ABC, Generic[A]):
    """Accepts for one listening socket, in the thread that runs the selector.

    What proves who somebody is, subclasses know.

    Args:
        listener: listening; closed by `close`.
        selector: of the thread; events of what `owns` accepts are for `serve`.
        max_pending: places for connections that have not authenticated themselves.
        accept_at_once: so many, before those that are here have their turn.
        log: gets one sentence, once, when there is no descriptor left.

    Attributes:
        unauthenticated: connections that were dropped without having authenticated themselves.
    """

    def __init__(
        self,
        listener: socket.socket,
        selector: selectors.BaseSelector,
        *,
        max_pending: int,
        accept_at_once: int,
        log: Callable[[str], None],
    ) -> None:
        self._listener, self._selector, self._log = listener, selector, log
        self._max_pending, self._accept_at_once = max_pending, accept_at_once
        self._pending: dict[int, A] = {}
        self._origins: Counter[str] = Counter()
        self._paused_until_s: float | None = None
        self._complained = False
        self.unauthenticated = 0
        listener.setblocking(False)
        selector.register(listener, selectors.EVENT_READ)

    @property
    def pending(self) -> int:
        """Connections that are in the handshake."""
        return len(self._pending)

    def owns(self, descriptor: int) -> bool:
        """Whether an event of this descriptor is for `serve`."""
        return descriptor in self._pending or descriptor == self._listener.fileno()

    def serve(self, descriptor: int) -> None:
        """Something has come in."""
        if descriptor in self._pending:
            self._read(self._pending[descriptor])
        elif self._paused_until_s is None:
            self._accept(time.monotonic())

    def wait_s(self, now_s: float) -> float | None:
        """Until when `tick` has nothing to do, seconds from now; None where it never has."""
        ends = [] if self._paused_until_s is None else [self._paused_until_s]
        if (oldest := self._oldest()) is not None:
            ends.append(oldest.since_s + HANDSHAKE_S)
        return max(0.0, min(ends) - now_s) if ends else None

    def tick(self, now_s: float) -> None:
        """Drop connections that are slow; accept again after a pause."""
        self._drop_older_than(HANDSHAKE_S, now_s)
        if self._paused_until_s is not None and now_s >= self._paused_until_s:
            self._paused_until_s = None
            self._selector.register(self._listener, selectors.EVENT_READ)

    def close(self) -> None:
        """Stop listening. Connections in the handshake count as unauthenticated."""
        for peer in list(self._pending.values()):
            self._drop(peer)
        if self._paused_until_s is None:
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(self._listener)
        self._listener.close()

    def _accept(self, now_s: float) -> None:
        for _ in range(self._accept_at_once):
            try:
                connection, address = self._listener.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:
                self._pause(now_s, error.strerror or str(error))
                return
            if connection.fileno() >= _descriptor_limit() - RESERVED_DESCRIPTORS:
                _reset(connection)
                self._pause(now_s, "too many open files")
                return
            self._take_in(connection, _origin(address[0]), now_s)

    @abstractmethod
    def _arrive(self, connection: socket.socket, origin: str, now_s: float) -> A:
        """Somebody has come."""

    def _greet(self, _peer: A) -> None:
        """Speak first.

        Raises:
            OSError: it has gone.
        """

    @abstractmethod
    def _read(self, peer: A) -> None:
        """One that has come has sent something."""

    def _take_in(self, connection: socket.socket, origin: str, now_s: float) -> None:
        if len(self._pending) >= self._max_pending:
            self._make_room()
        connection.setblocking(False)
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._selector.register(connection, selectors.EVENT_READ)
        except OSError:
            _reset(connection)
            return
        peer = self._pending[connection.fileno()] = self._arrive(connection, origin, now_s)
        self._origins[origin] += 1
        try:
            self._greet(peer)
        except OSError:
            self._drop(peer)

    def _make_room(self) -> None:
        most = max(self._origins.values())
        self._drop(next(p for p in self._pending.values() if self._origins[p.origin] == most))

    def _drop_older_than(self, age_s: float, now_s: float) -> None:
        while (oldest := self._oldest()) is not None and now_s - oldest.since_s >= age_s:
            self._drop(oldest)

    def _oldest(self) -> A | None:
        # A dict keeps the order in which they came.
        return next(iter(self._pending.values()), None)

    def _pause(self, now_s: float, why: str) -> None:
        """Accept nothing for a moment; those that are silent give their descriptors back."""
        self._drop_older_than(_GRACE_S, now_s)
        self._selector.unregister(self._listener)
        self._paused_until_s = now_s + PAUSE_S
        if not self._complained:
            self._complained = True
            self._log(
                f"connections have to wait ({why}): this process may have {_descriptor_limit()}"
                " files open; raise that with `ulimit -n` (LimitNOFILE= in a unit, --ulimit nofile="
                " for a container) before the start"
            )

    def _forget(self, peer: A) -> None:
        with contextlib.suppress(KeyError):
            self._selector.unregister(peer.connection)
        del self._pending[peer.connection.fileno()]
        self._origins[peer.origin] -= 1
        if not self._origins[peer.origin]:
            del self._origins[peer.origin]

    def _drop(self, peer: A) -> None:
        self.unauthenticated += 1
        self._forget(peer)
        _reset(peer.connection)


def _reset(connection: socket.socket) -> None:
    """Close with a reset: the other end then knows that it may try again."""
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    connection.close()


def _descriptor_limit() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 30 if soft == resource.RLIM_INFINITY else soft


def _origin(address: str) -> str:
    """What one host may have: an address of IPv4, a /64 of IPv6, or all of loopback."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if parsed.is_loopback:
        return "loopback"
    if parsed.version == 6:
        return str(ipaddress.ip_network((parsed, 64), strict=False))
    return address
