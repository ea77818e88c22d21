"""The control connection of the tcp probe: short JSON lines, and the ping-pong."""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Sequence
from typing import Any

from relkit.text.foreign_json import parse_json

PING_BYTES = 64
_MAX_LINE_BYTES = 1 << 16
_MAX_PINGS = 2000
_WARM_UP_PINGS = 10
_MORE, _LAST = b"\0", b"\1"


class Control:
    """Lines to and from the other end, each within the probe's deadline.

    Args:
        connection: authenticated and blocking; closed by `close`.
        until_s: time.monotonic() at which the whole probe ends.
    """

    def __init__(self, connection: socket.socket, until_s: float) -> None:
        self._connection = connection
        self._until_s = until_s
        self._rest = bytearray()

    @property
    def left_s(self) -> float:
        """Time until the deadline; never negative."""
        return max(self._until_s - time.monotonic(), 0.0)

    def send(self, **message: object) -> None:
        """Send one line. Raises OSError."""
        self._set_deadline()
        self._connection.sendall(json.dumps(message).encode() + b"\n")

    def receive(self) -> dict[str, Any]:
        """The next line; {} if the other end has closed.

        Raises:
            OSError: no line within the deadline, or the connection broke.
            ValueError: not a JSON object, or too long.
        """
        while b"\n" not in self._rest:
            self._set_deadline()
            part = self._connection.recv(4096)
            if not part:
                if self._rest:
                    raise ConnectionResetError("closed in the middle of a line")
                return {}
            self._rest += part
            if len(self._rest) > _MAX_LINE_BYTES:
                raise ValueError("the other end sent a line without end")
        line, _, rest = bytes(self._rest).partition(b"\n")
        self._rest = bytearray(rest)
        message = parse_json(line)
        if not isinstance(message, dict):
            raise ValueError("the other end sent a line that is not a JSON object")
        return message

    def ping(self, time_s: float, size_bytes: int = PING_BYTES) -> list[float]:
        """Round trips of this size for this long, at least one: seconds each, in order."""
        self._set_deadline()
        trips: list[float] = []
        connection, buffer = self._connection, memoryview(bytearray(size_bytes))
        end_s = time.monotonic() + min(time_s, self.left_s)
        last = False
        while not last:
            last = len(trips) >= _MAX_PINGS or (bool(trips) and time.monotonic() >= end_s)
            buffer[:1] = _LAST if last else _MORE
            start = time.perf_counter()
            connection.sendall(buffer)
            _fill(connection, buffer)
            trips.append(time.perf_counter() - start)
        return trips[_WARM_UP_PINGS:] if len(trips) > 2 * _WARM_UP_PINGS else trips

    def pong(self, size_bytes: int = PING_BYTES) -> None:
        """Send back whatever `ping` sends of this size, until its last."""
        self._set_deadline()
        buffer = memoryview(bytearray(size_bytes))
        while True:
            _fill(self._connection, buffer)
            self._connection.sendall(buffer)
            if buffer[:1] == _LAST:
                return

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _set_deadline(self) -> None:
        """Let the kernel end calls at the deadline; a Python timeout would poll on each call."""
        left_s = max(self.left_s, 0.001)
        limit = struct.pack("@ll", int(left_s), int(left_s % 1 * 1e6))
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            self._connection.setsockopt(socket.SOL_SOCKET, option, limit)


def _fill(connection: socket.socket, buffer: memoryview) -> None:
    filled = 0
    while filled < len(buffer):
        part = connection.recv_into(buffer[filled:])
        if not part:
            raise ConnectionResetError("closed in the middle of the ping-pong")
        filled += part


def percentile(ordered: Sequence[float], share: float) -> float:
    """The value below which `share` (0..1) of the ordered values lie; 0 for none."""
    if not ordered:
        return 0.0
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]
