"""Asks the RAS listener of NCCL on this host; one process of the job answers for all of it.

Source: NCCL 2.28 to 2.30, src/ras/client_support.cc (rasClientEventLoop) and client.cc.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path

from relkit.errors import RelkitError
from relkit.text.whole_number import whole_number

PORT = 28028
# Where jobs change that; as NCCL reads it.
ADDRESS_VARIABLE = "NCCL_RAS_ADDR"
LIMIT_BYTES = 64 << 20
_CHUNK_BYTES = 1 << 18
_MAX_LINE_BYTES = 1 << 10
_LISTENS = "0A"
_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))


class NoAnswer(RelkitError):
    """The RAS of NCCL could not be asked."""

    next_step = "NCCL answers from 2.28 on, unless NCCL_RAS_ENABLE=0 is set in the job."


class NobodyListens(NoAnswer):
    """There is no RAS on this host."""


def ras_address(environ: Mapping[str, str]) -> tuple[str, int]:
    """Where the jobs of this environment listen.

    Args:
        environ: of the launcher, which its workers inherit.

    Raises:
        NoAnswer: the variable holds no address.
    """
    given = environ.get(ADDRESS_VARIABLE, "")
    if not given:
        return "localhost", PORT
    host, _, port = given.rpartition(":")
    number = whole_number(port, 65535)
    if not host or not number:
        raise NoAnswer(f"{ADDRESS_VARIABLE} is {given[:80]!r}, which is not HOST:PORT")
    return host.strip("[]"), number


def ask(address: tuple[str, int], deadline_s: float, *, limit_bytes: int = LIMIT_BYTES) -> bytes:
    """The JSON that RAS gives.

    Args:
        address: of its listener.
        deadline_s: the longest that it may take, s.
        limit_bytes: a longer answer is an error.

    Raises:
        NobodyListens: nobody does.
        NoAnswer: it is another user's, is not RAS, is too old for JSON, or did not answer in time.
    """
    if deadline_s <= 0:
        raise NoAnswer("no time is left to ask")
    end_s = time.monotonic() + deadline_s
    users = _users_at(address[1]) - {os.geteuid()}
    if users:
        raise NoAnswer(f"another user (uid {min(users)}) listens at port {address[1]}")
    connection = _connected(address, deadline_s)
    try:
        with connection:
            lines = _Lines(connection, end_s)
            if not lines.say("CLIENT PROTOCOL 2").startswith("SERVER PROTOCOL "):
                raise NoAnswer(f"what listens at port {address[1]} is not NCCL")
            # NCCL waits in whole seconds for processes that do not answer: as short as it can.
            for line in ("TIMEOUT 1", "SET FORMAT json"):
                if lines.say(line) != "OK":
                    raise NoAnswer("its NCCL is older than 2.28, and gives no JSON")
            return lines.rest("STATUS", limit_bytes)
    except TimeoutError as error:
        raise NoAnswer(f"no answer in {deadline_s:.3g} s") from error
    except OSError as error:
        raise NoAnswer(error.strerror or str(error)) from error


def _connected(address: tuple[str, int], deadline_s: float) -> socket.socket:
    try:
        return socket.create_connection(address, timeout=deadline_s)
    except OSError as error:
        raise NobodyListens(f"nobody listens at {address[0]}:{address[1]}") from error


class _Lines:
    """Commands and their answers, all within one deadline."""

    def __init__(self, connection: socket.socket, end_s: float) -> None:
        self._connection, self._end_s = connection, end_s
        self._data = b""

    def say(self, command: str) -> str:
        """Send a command; the line that answers it."""
        self._send(command)
        while b"\n" not in self._data:
            chunk = self._receive()
            self._data += chunk
            if not chunk or len(self._data) > _MAX_LINE_BYTES:
                return ""
        line, _, self._data = self._data.partition(b"\n")
        return line.decode("ascii", "replace").strip()

    def rest(self, command: str, limit_bytes: int) -> bytes:
        """Send the last command; all that comes until the other end closes."""
        self._send(command)
        parts, size_bytes = [self._data], len(self._data)
        while chunk := self._receive():
            parts.append(chunk)
            size_bytes += len(chunk)
            if size_bytes > limit_bytes:
                raise NoAnswer(f"an answer of more than {limit_bytes} bytes")
        return b"".join(parts)

    def _send(self, command: str) -> None:
        self._wait()
        self._connection.sendall(f"{command}\n".encode("ascii"))

    def _receive(self) -> bytes:
        self._wait()
        return self._connection.recv(_CHUNK_BYTES)

    def _wait(self) -> None:
        left_s = self._end_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        self._connection.settimeout(left_s)


def _users_at(port: int) -> set[int]:
    """Who listens at this port on this host, as far as the kernel says."""
    users = set()
    for table in _TABLES:
        try:
            lines = table.read_text("ascii").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if len(fields) > 7 and fields[3] == _LISTENS and _port_of(fields[1]) == port:
                users.add(int(fields[7]))
    return users


def _port_of(address: str) -> int:
    return int(address.rpartition(":")[2], 16)
