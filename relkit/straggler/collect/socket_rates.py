"""How fast the network takes what ranks send, told by the kernel's counters of their connections.

Nothing of the job is touched: the kernel keeps, for each TCP connection, how many bytes the other
end has confirmed and for how long any were under way. The quotient is the rate of the wire while
there was something to send, whoever waits for whom. It works for what goes through TCP (gloo, and
NCCL's socket transport), not for RDMA. It must run in the network namespace of the ranks.

Source: linux/inet_diag.h, linux/tcp.h, sock_diag(7).
"""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import struct
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from relkit.straggler.edge_traffic import EdgeTraffic

_SOCK_DIAG = 4
_BY_FAMILY = 20
_REQUEST_DUMP = 0x301
_ERROR, _DONE = 2, 3
_ESTABLISHED = 1 << 1
_INFO = 2
_HEADER = struct.Struct("=IHHII")
_REQUEST = struct.Struct("=BBBBI48s")
# Of the answer: family, three bytes, ports, addresses, interface, cookie, then six numbers.
_MESSAGE = struct.Struct("=BBBB2s2s16s16sIQIIIII")
_ATTRIBUTE = struct.Struct("=HH")
# Of struct tcp_info, which only ever grows: places of what is used here.
_RTT_AT, _RETRANSMITS_AT, _ACKED_AT, _BUSY_AT = 68, 100, 120, 168
_INFO_BYTES = 192
_DEADLINE_S = 1.0
_RECEIVE_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Connection:
    """One TCP connection, counters since it was made.

    Args:
        cookie: the kernel's number of it, never used twice; inode: as in /proc/PID/fd.
        here, there: addresses of this end and the other.
        acked_bytes: confirmed by the other end; retransmits: segments sent again.
        busy_s: for so long something was unconfirmed; receiver_s: of that the other end's window
            was full, which is no fault of the network; rtt_s: smoothed round trip.
    """

    cookie: int
    inode: int
    here: str
    there: str
    acked_bytes: int
    busy_s: float
    receiver_s: float
    retransmits: int
    rtt_s: float


class ConnectionTable(Protocol):
    """Where the counters come from."""

    def read(self) -> tuple[Connection, ...]:
        """All established TCP connections; () where the kernel does not tell."""


class KernelConnections:
    """Asks the kernel by netlink; needs no privilege, and no other program."""

    def read(self) -> tuple[Connection, ...]:
        """Of this network namespace, IPv4 and IPv6.

        Raises:
            OSError: the kernel cannot be asked, or does not answer within a second.
        """
        connections: list[Connection] = []
        kind = socket.SOCK_RAW | socket.SOCK_CLOEXEC
        with socket.socket(socket.AF_NETLINK, kind, _SOCK_DIAG) as kernel:
            kernel.settimeout(_DEADLINE_S)
            for number, family in enumerate((socket.AF_INET, socket.AF_INET6), 1):
                body = _REQUEST.pack(
                    family, socket.IPPROTO_TCP, 1 << (_INFO - 1), 0, _ESTABLISHED, bytes(48)
                )
                length = _HEADER.size + len(body)
                kernel.send(_HEADER.pack(length, _BY_FAMILY, _REQUEST_DUMP, number, 0) + body)
                while not _take(kernel.recv(_RECEIVE_BYTES), number, connections):
                    pass
        return tuple(connections)


class SocketRates:
    """Call look() about once a second; it says what the ranks have sent since the last time.

    Args:
        table: where the counters come from.
    """

    def __init__(self, table: ConnectionTable | None = None) -> None:
        self._table = table or KernelConnections()
        self._before: dict[int, Connection] = {}

    def look(self, pids: Iterable[int]) -> tuple[EdgeTraffic, ...]:
        """By pair of addresses; connections within the host are left out.

        Args:
            pids: processes of the ranks of this node.

        Raises:
            OSError: see KernelConnections.read.
        """
        inodes = socket_inodes(pids)
        now = {
            connection.cookie: connection
            for connection in self._table.read()
            if connection.inode in inodes
        }
        own = {connection.here for connection in now.values()}
        totals: dict[tuple[str, str], EdgeTraffic] = {}
        for cookie, connection in now.items():
            before = self._before.get(cookie)
            if connection.there in own or before is None:
                continue
            busy_s = (connection.busy_s - connection.receiver_s) - (
                before.busy_s - before.receiver_s
            )
            so_far = totals.get(
                (connection.here, connection.there),
                EdgeTraffic(connection.here, connection.there, 0, 0.0, 0, 0.0),
            )
            totals[connection.here, connection.there] = EdgeTraffic(
                connection.here,
                connection.there,
                so_far.acked_bytes + max(0, connection.acked_bytes - before.acked_bytes),
                max(so_far.busy_s, busy_s),
                so_far.retransmits + max(0, connection.retransmits - before.retransmits),
                max(so_far.rtt_s, connection.rtt_s),
            )
        self._before = now
        return tuple(each for each in totals.values() if each.acked_bytes)


def socket_inodes(pids: Iterable[int]) -> frozenset[int]:
    """Inodes of the sockets that these processes hold; those gone or not ours have none."""
    inodes: set[int] = set()
    for pid in pids:
        try:
            for link in Path(f"/proc/{pid}/fd").iterdir():
                with suppress(OSError):
                    kind, _, number = str(link.readlink()).partition(":[")
                    if kind == "socket" and number[:-1].isdigit():
                        inodes.add(int(number[:-1]))
        except OSError:
            continue
    return frozenset(inodes)


def _take(raw: bytes, number: int, connections: list[Connection]) -> bool:
    """Parse one answer; True after the last one."""
    place = 0
    while place + _HEADER.size <= len(raw):
        length, kind, _, sequence, _ = _HEADER.unpack_from(raw, place)
        if length < _HEADER.size or place + length > len(raw):
            raise OSError(errno.EBADMSG, "the kernel's answer about sockets is torn")
        if sequence == number:
            if kind == _DONE:
                return True
            body = raw[place + _HEADER.size : place + length]
            if kind == _ERROR:
                (code,) = struct.unpack_from("=i", body)
                raise OSError(-code, f"sockets cannot be listed: {os.strerror(-code)}")
            connection = _connection(body)
            if connection is not None:
                connections.append(connection)
        place += (length + 3) & ~3
    return False


def _connection(body: bytes) -> Connection | None:
    """None where the kernel tells too little (before Linux 4.10)."""
    if len(body) < _MESSAGE.size:
        return None
    parts = _MESSAGE.unpack_from(body)
    size = 4 if parts[0] == socket.AF_INET else 16
    info, place = b"", _MESSAGE.size
    while place + _ATTRIBUTE.size <= len(body):
        length, kind = _ATTRIBUTE.unpack_from(body, place)
        if length < _ATTRIBUTE.size:
            break
        if kind == _INFO:
            info = body[place + _ATTRIBUTE.size : place + length]
        place += (length + 3) & ~3
    if len(info) < _INFO_BYTES:
        return None
    busy_us, receiver_us, _ = struct.unpack_from("=QQQ", info, _BUSY_AT)
    return Connection(
        cookie=parts[9],
        inode=parts[14],
        here=_address(parts[6][:size]),
        there=_address(parts[7][:size]),
        acked_bytes=struct.unpack_from("=Q", info, _ACKED_AT)[0],
        busy_s=busy_us / 1e6,
        receiver_s=receiver_us / 1e6,
        retransmits=struct.unpack_from("=I", info, _RETRANSMITS_AT)[0],
        rtt_s=struct.unpack_from("=I", info, _RTT_AT)[0] / 1e6,
    )


def _address(raw: bytes) -> str:
    address = ipaddress.ip_address(raw)
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        return str(address.ipv4_mapped)
    return str(address)
