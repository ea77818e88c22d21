"""The door before a launcher's links: ZeroMQ accepts nobody itself, and so holds few descriptors.

A connection from outside leads to ZeroMQ only once it has said something, over a socket inside this
process, and has one of few places until ZeroMQ has found that it has the key. After that its bytes
are passed on for as long as it lasts.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from relkit.net.door import Arrival, Door

_MAX_PENDING = 64
# Few, so that one that speaks has several turns before as many as there are places have come.
_ACCEPT_AT_ONCE = 4
_CHUNK_BYTES = 64 << 10
# One that sends much leaves the others their turn.
_CHUNKS_AT_ONCE = 8
# Who has the key is told so by the command READY of CURVE, https://rfc.zeromq.org/spec/26: behind
# a greeting of 64 bytes, and WELCOME in a frame of 2 + 168. Anybody else gets ERROR, or nothing.
_READY_AT, _READY = 64 + 2 + 168 + 2, b"\x05READY"
_FIRST_BYTES = _READY_AT + len(_READY)


@dataclass(slots=True)
class _Way:
    """One direction of a link.

    Args:
        waiting: what has come and could not be sent yet; first: what came first.
    """

    waiting: bytearray = field(default_factory=bytearray)
    first: bytearray = field(default_factory=bytearray)

    def move(self, source: socket.socket, sink: socket.socket) -> bool:
        """Pass on what has come; False once the source has ended.

        Raises:
            OSError: one of them has gone.
        """
        with contextlib.suppress(BlockingIOError):
            for _ in range(_CHUNKS_AT_ONCE):
                if not self.waiting:
                    self.waiting += source.recv(_CHUNK_BYTES)
                    self.first += self.waiting[: _FIRST_BYTES - len(self.first)]
                if not self.waiting:
                    return False
                del self.waiting[: sink.send(self.waiting)]
        return True


@dataclass(slots=True)
class _Link(Arrival):
    """A connection, and where it leads.

    Args:
        inside: to ZeroMQ; None as long as nothing has come.
        up: from outside to ZeroMQ; down: the other way.
    """

    inside: socket.socket | None = None
    up: _Way = field(default_factory=_Way)
    down: _Way = field(default_factory=_Way)

    @property
    def has_key(self) -> bool:
        """ZeroMQ has said so."""
        return self.down.first[_READY_AT:] == _READY


class LinkDoor(Door[_Link]):
    """Passes on what comes, in the thread of the links: wait for `fileno`, then call `turn`.

    Args:
        listener: where others connect to; closed by `close`.
        open_inside: a new connection to ZeroMQ; may raise OSError.
        log: see Door.
    """

    def __init__(
        self,
        listener: socket.socket,
        open_inside: Callable[[], socket.socket],
        log: Callable[[str], None],
    ) -> None:
        self._epoll = selectors.EpollSelector()
        super().__init__(
            listener,
            self._epoll,
            max_pending=_MAX_PENDING,
            accept_at_once=_ACCEPT_AT_ONCE,
            log=log,
        )
        self._open_inside = open_inside
        # By the descriptors of both ends.
        self._links: dict[int, _Link] = {}

    def fileno(self) -> int:
        """Can be read as long as `turn` has something to do."""
        return self._epoll.fileno()

    def turn(self) -> None:
        """Let in, pass on and drop what is to be."""
        for key, _ in self._epoll.select(0):
            link = self._links.get(key.fd)
            if link is not None:
                self._read(link)
            elif self.owns(key.fd):
                self.serve(key.fd)
        self.tick(time.monotonic())

    def finish(self, timeout_s: float) -> None:
        """ZeroMQ closes its ends: pass on what it has sent last, for no longer than that."""
        until_s = time.monotonic() + timeout_s
        while self._links and (left_s := until_s - time.monotonic()) > 0:
            self._epoll.select(left_s)
            self.turn()

    def close(self) -> None:
        """Nobody is let in any more, and every link is ended."""
        super().close()
        while self._links:
            self._end(next(iter(self._links.values())))
        self._epoll.close()

    def _arrive(self, connection: socket.socket, origin: str, now_s: float) -> _Link:
        link = self._links[connection.fileno()] = _Link(connection, origin, now_s)
        return link

    def _read(self, peer: _Link) -> None:
        try:
            if peer.inside is None:
                peer.inside = self._open_inside()
                peer.inside.setblocking(False)
                self._links[peer.inside.fileno()] = peer
            # ZeroMQ's last words first: nothing can be sent to an end that it has closed.
            goes_on = peer.down.move(peer.inside, peer.connection)
            goes_on = goes_on and peer.up.move(peer.connection, peer.inside)
            if goes_on and peer.has_key and self._is_pending(peer):
                self._forget(peer)
            self._watch(peer.connection, reads=not peer.up.waiting, writes=bool(peer.down.waiting))
            self._watch(peer.inside, reads=not peer.down.waiting, writes=bool(peer.up.waiting))
        except OSError:
            goes_on = False
        if not goes_on:
            self._end(peer)

    def _is_pending(self, link: _Link) -> bool:
        return self._pending.get(link.connection.fileno()) is link

    def _watch(self, end: socket.socket, *, reads: bool, writes: bool) -> None:
        events = selectors.EVENT_READ * reads | selectors.EVENT_WRITE * writes
        known = self._epoll.get_map().get(end)
        if known is None and events:
            self._epoll.register(end, events)
        elif known is not None and not events:
            self._epoll.unregister(end)
        elif known is not None and known.events != events:
            self._epoll.modify(end, events)

    def _end(self, link: _Link) -> None:
        if self._is_pending(link):
            self._drop(link)
            return
        self._leave(link)
        link.connection.close()

    def _drop(self, peer: _Link) -> None:
        self._leave(peer)
        super()._drop(peer)

    def _leave(self, link: _Link) -> None:
        """Stop serving it, and close the end inside."""
        for end in (link.connection, link.inside):
            if end is not None:
                self._links.pop(end.fileno(), None)
                self._watch(end, reads=False, writes=False)
        if link.inside is not None:
            link.inside.close()
