"""The controller's ends of its links: what is to be written, and who speaks for which rank."""

from __future__ import annotations

import contextlib
import selectors
import socket
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from relkit.ttp.link import LineBuffer, tune
from relkit.ttp.messages import BadMessage, Hello, Message, Stop

_CHUNK_BYTES = 1 << 16


@dataclass(slots=True, eq=False)
class RankLink:
    """One authenticated connection.

    Args:
        sock: not blocking.
        rank: that it speaks for; -1 before its hello.
        finished: it is not listened to any more.
    """

    sock: socket.socket
    rank: int = -1
    finished: bool = False
    lines: LineBuffer = field(default_factory=LineBuffer)
    out: bytearray = field(default_factory=bytearray)


class RankLinks:
    """All authenticated connections of a controller.

    Args:
        selector: of the thread that serves them.
        world_size: ranks of the job.
    """

    def __init__(self, selector: selectors.BaseSelector, world_size: int) -> None:
        self._selector, self._world_size = selector, world_size
        self._links: dict[int, RankLink] = {}
        self._by_rank: dict[int, RankLink] = {}

    def __len__(self) -> int:
        return len(self._links)

    def add(self, sock: socket.socket) -> None:
        """Take over a connection that has authenticated itself."""
        with contextlib.suppress(OSError):
            tune(sock)
        self._links[sock.fileno()] = RankLink(sock)
        self._selector.register(sock, selectors.EVENT_READ)

    def at(self, descriptor: int) -> RankLink | None:
        """The link with this descriptor."""
        return self._links.get(descriptor)

    def of_ranks(self, ranks: Iterable[int]) -> Iterator[RankLink]:
        """The links that speak for these ranks."""
        for rank in ranks:
            if (link := self._by_rank.get(rank)) is not None:
                yield link

    def receive(self, link: RankLink) -> Iterator[Message] | None:
        """What has come over a link; None where it has ended.

        Raises:
            BadMessage: while it is iterated: what came is no message, or not this rank's.
        """
        try:
            data = link.sock.recv(_CHUNK_BYTES)
        except BlockingIOError:
            return iter(())
        except OSError:
            data = b""
        if not data:
            return None
        return iter(()) if link.finished else self._messages(link, data)

    def _messages(self, link: RankLink, data: bytes) -> Iterator[Message]:
        for message in link.lines.feed(data):
            self._check(link, message)
            yield message

    def _check(self, link: RankLink, message: Message) -> None:
        """A link speaks for one rank, and for a rank one link speaks."""
        if isinstance(message, Stop) and link.rank < 0:
            return
        if isinstance(message, Hello) and link.rank < 0:
            if not 0 <= message.rank < self._world_size == message.world_size:
                raise BadMessage(f"there is no rank {message.rank} of {message.world_size}")
            if message.rank in self._by_rank:
                raise BadMessage(f"rank {message.rank} is there already")
            link.rank = message.rank
            self._by_rank[link.rank] = link
        elif getattr(message, "rank", -1) != link.rank or link.rank < 0:
            raise BadMessage(f"rank {link.rank} speaks for another")

    def write(self, link: RankLink, data: bytes) -> None:
        """Send, now or when there is room."""
        link.out += data
        self.flush(link)

    def finish(self, link: RankLink) -> None:
        """Nothing more is read from it; its rank may come again, over another link."""
        self._by_rank.pop(link.rank, None)
        link.finished, link.rank = True, -1

    def flush(self, link: RankLink) -> None:
        """Send what there is room for."""
        try:
            while link.out:
                sent = link.sock.send(link.out)
                del link.out[:sent]
        except BlockingIOError:
            pass
        except OSError:
            # The next read finds its end.
            link.out.clear()
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if link.out else 0)
        with contextlib.suppress(KeyError, ValueError):
            if self._selector.get_key(link.sock).events != events:
                self._selector.modify(link.sock, events)

    def drop(self, link: RankLink) -> None:
        """Close a connection."""
        self._links.pop(link.sock.fileno(), None)
        if self._by_rank.get(link.rank) is link:
            del self._by_rank[link.rank]
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(link.sock)
        link.sock.close()

    def close(self) -> None:
        """Close all."""
        for link in list(self._links.values()):
            self.drop(link)
