"""The door of a listener whose two ends know one key: a greeting, an answer, a confirmation.

A connection whose answer is wrong is closed, which is final; one that has lost its place is reset,
and an honest end tries again (`relkit.net.dial`).
"""

from __future__ import annotations

import selectors
import socket
from collections.abc import Callable
from dataclasses import dataclass, field

from relkit.net import handshake
from relkit.net.door import Arrival, Door
from relkit.net.handshake import Label

MAX_PENDING = 512
_ACCEPT_AT_ONCE = 64

# Given a greeting and the answer to it: the label and the confirmation, or None for a wrong answer.
Check = Callable[[bytes, bytes], tuple[Label, bytes] | None]


@dataclass(slots=True)
class _Greeted(Arrival):
    """A connection that is to answer.

    Args:
        greeted: what it was sent; answered: what has come of the answer.
    """

    greeted: bytes
    answered: bytearray = field(default_factory=bytearray)


class Gate(Door[_Greeted]):
    """Accepts and authenticates, see Door.

    Args:
        listener, selector, max_pending, log: see Door.
        check: see Check.
        admit: takes over an authenticated connection (not blocking, no longer in the selector).
    """

    def __init__(
        self,
        listener: socket.socket,
        selector: selectors.BaseSelector,
        check: Check,
        admit: Callable[[Label, socket.socket], None],
        *,
        max_pending: int = MAX_PENDING,
        log: Callable[[str], None] = lambda _: None,
    ) -> None:
        super().__init__(
            listener, selector, max_pending=max_pending, accept_at_once=_ACCEPT_AT_ONCE, log=log
        )
        self._check, self._admit = check, admit

    def _arrive(self, connection: socket.socket, origin: str, now_s: float) -> _Greeted:
        return _Greeted(connection, origin, now_s, handshake.greeting())

    def _greet(self, peer: _Greeted) -> None:
        peer.connection.send(peer.greeted)

    def _read(self, peer: _Greeted) -> None:
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

    def _authenticate(self, peer: _Greeted) -> None:
        accepted = self._check(peer.greeted, bytes(peer.answered))
        if accepted is None:
            self.unauthenticated += 1
            self._forget(peer)
            peer.connection.close()
            return
        label, confirmation = accepted
        try:
            peer.connection.send(confirmation)
        except OSError:
            self._drop(peer)
            return
        self._forget(peer)
        self._admit(label, peer.connection)
