"""A control link: lines of messages over a socket whose two ends know the job's secret."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass

from relkit.errors import RelkitError
from relkit.net import handshake
from relkit.net.dial import dial
from relkit.net.interface import NoRoute
from relkit.text.whole_number import whole_number
from relkit.ttp.messages import LONGEST_LINE_BYTES, BadMessage, Message, decode, encode

_CHUNK_BYTES = 1 << 16
# A controller that does not take a message for this long is gone.
_SEND_S = 10.0


class LinkEnded(RelkitError):
    """The other end of a control link is gone, or is not who it should be."""

    next_step = "See the launcher's log on the node of rank 0."


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a controller listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_endpoint(text: str) -> Endpoint:
    """Read `host:port` or `[host]:port`.

    Raises:
        LinkEnded: it is neither.
    """
    host, colon, port = text.rpartition(":")
    number = whole_number(port, 65535)
    if not colon or not number:
        raise LinkEnded(f"{text!r} is not an endpoint of a controller")
    return Endpoint(host.removeprefix("[").removesuffix("]"), number)


class LineBuffer:
    """Cuts what arrives into messages."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[Message]:
        """The messages that are complete with these bytes.

        Raises:
            BadMessage: a line is none of ours, or does not end.
        """
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > LONGEST_LINE_BYTES:
            raise BadMessage("a message does not end")
        for line in lines:
            yield decode(line)


def tune(sock: socket.socket) -> None:
    """No delay for small messages, and a peer whose host is gone is noticed."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    # Data that nobody acknowledges for this long ends the link (Linux, tcp(7)); milliseconds.
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 10_000)


class Link:
    """A rank's end. Sending is safe from any thread; receiving is for one thread.

    Args:
        sock: connected, and both ends have proven themselves.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._lock = threading.Lock()
        # Not select(): a rank may have more than 1,024 files open.
        self._readable = select.poll()
        self._readable.register(sock, select.POLLIN)
        self._buffer = LineBuffer()
        self._waiting: list[Message] = []

    def fileno(self) -> int:
        """The socket's descriptor, which must survive the shutting of others."""
        return self._socket.fileno()

    def send(self, message: Message) -> None:
        """Send a message.

        Raises:
            LinkEnded: the controller is gone.
        """
        try:
            with self._lock:
                self._socket.sendall(encode(message))
        except OSError as error:
            raise LinkEnded(f"the link to the controller ended: {error}") from error

    def receive(self, timeout_s: float) -> Message | None:
        """The next message; None where none came in time.

        Raises:
            LinkEnded: the controller is gone, or sent what is no message.
        """
        if not self._waiting:
            try:
                if not self._readable.poll(timeout_s * 1000):
                    return None
                data = self._socket.recv(_CHUNK_BYTES)
                self._waiting = list(self._buffer.feed(data))
            except (OSError, ValueError, BadMessage) as error:
                raise LinkEnded(f"the link to the controller ended: {error}") from error
            if not data:
                raise LinkEnded("the controller closed its link")
        return self._waiting.pop(0) if self._waiting else None

    def close(self) -> None:
        """End the link."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


def connect(endpoint: Endpoint, secret: bytes, attempt: int, timeout_s: float) -> Link:
    """Reach a controller and prove each other; where it has no place, again and again.

    Args:
        endpoint: where it listens; secret: the job's; attempt: of the job, so that a rank of
            an earlier one is not let in.
        timeout_s: for all of it, seconds.

    Raises:
        LinkEnded: there is nobody, or not who it should be.
    """
    try:
        sock = dial(endpoint.host, endpoint.port, attempt, secret, handshake.CONTROL, timeout_s)
    except PermissionError as error:
        raise LinkEnded(
            f"this process and the listener at {endpoint} do not share the job's secret: {error}"
        ) from error
    except (OSError, NoRoute) as error:
        raise LinkEnded(f"no controller at {endpoint}: {error}") from error
    with contextlib.suppress(OSError):
        tune(sock)
    sock.settimeout(_SEND_S)
    return Link(sock)
