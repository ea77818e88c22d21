"""Asks the servers that torch runs in its workers: HTTP over Unix sockets, all of them at once.

They answer in threads of their own, without Python's interpreter lock (seen in torch 2.13).
Source: torch/csrc/distributed/c10d/control_plane/WorkerServer.cpp.
"""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from relkit.flight_recorder.plain_data import LIMIT_BYTES
from relkit.text.whole_number import whole_number

_CHUNK_BYTES = 1 << 18
_HEAD_BYTES = 1 << 14
_END_OF_HEAD = b"\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Answers:
    """What the servers said.

    Args:
        bodies: of those that answered in time; failures: why not, of the others. By rank.
        ended: of the failures, those at whose socket nobody listens any more.
    """

    bodies: Mapping[int, bytes]
    failures: Mapping[int, str]
    ended: frozenset[int] = frozenset()


def ask(
    sockets: Mapping[int, Path], request: str, deadline_s: float, *, limit_bytes: int = LIMIT_BYTES
) -> Answers:
    """Send one request to all servers, and wait for all of them together.

    Args:
        sockets: by rank; request: `POST /handler/ping`.
        deadline_s: the longest that it may take in all, s.
        limit_bytes: a longer answer is a failure.
    """
    end_s = time.monotonic() + deadline_s
    bodies: dict[int, bytes] = {}
    failures: dict[int, str] = {}
    ended: set[int] = set()
    with selectors.DefaultSelector() as selector:
        for rank, at in sockets.items():
            try:
                connection = _connected(at, request)
            except OSError as error:
                failures[rank] = error.strerror or str(error)
                if isinstance(error, ConnectionRefusedError):
                    ended.add(rank)
            else:
                selector.register(connection, selectors.EVENT_READ, (rank, bytearray()))
        while selector.get_map():
            left_s = end_s - time.monotonic()
            ready = selector.select(left_s) if left_s > 0 else []
            if not ready:
                break
            for key, _ in ready:
                rank, data = key.data
                connection = _socket_of(key)
                try:
                    done = _receive(connection, data, limit_bytes)
                    if done:
                        bodies[rank] = _body(data)
                except (OSError, ValueError) as error:
                    failures[rank] = str(error)
                    done = True
                if done:
                    selector.unregister(connection)
                    connection.close()
        for key in list(selector.get_map().values()):
            failures[key.data[0]] = f"no answer in {deadline_s:g} s"
            _socket_of(key).close()
    return Answers(bodies, failures, frozenset(ended))


def _connected(at: Path, request: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # Neither of the two waits: a process that is stopped still has room for a few requests.
        connection.setblocking(False)
        connection.connect(str(at))
        head = f"{request} HTTP/1.1\r\nHost: relkit\r\nContent-Length: 0\r\nConnection: close\r\n"
        connection.sendall(f"{head}\r\n".encode())
    except OSError:
        connection.close()
        raise
    return connection


def _socket_of(key: selectors.SelectorKey) -> socket.socket:
    assert isinstance(key.fileobj, socket.socket)
    return key.fileobj


def _receive(connection: socket.socket, data: bytearray, limit_bytes: int) -> bool:
    """Take what has come; True where that was all."""
    try:
        chunk = connection.recv(_CHUNK_BYTES)
    except BlockingIOError:
        return False
    data += chunk
    if len(data) > limit_bytes:
        raise ValueError(f"an answer of more than {limit_bytes} bytes")
    return not chunk


def _body(data: bytearray) -> bytes:
    """What a whole answer holds.

    Raises:
        ValueError: it is none, or says that the request failed.
    """
    head_end = data.find(_END_OF_HEAD, 0, _HEAD_BYTES)
    if head_end < 0:
        raise ValueError("no HTTP answer")
    status, *fields = bytes(data[:head_end]).decode("latin-1").split("\r\n")
    words = status.split(" ", 2)
    if not words[0].startswith("HTTP/1.") or len(words) < 2:
        raise ValueError("no HTTP answer")
    if words[1] != "200":
        raise ValueError(f"the server says {' '.join(words[1:])[:80]}")
    body = bytes(data[head_end + len(_END_OF_HEAD) :])
    for field in fields:
        name, _, value = field.partition(":")
        if name.lower() == "content-length" and whole_number(value.strip()) != len(body):
            raise ValueError("an answer that was cut off")
    return body
