"""Connects to one of relkit's listeners; tries again where that has no place."""

from __future__ import annotations

import random
import socket
import time

from relkit.net import handshake
from relkit.net.handshake import Label
from relkit.net.interface import own_address

# A connection that waits longer than this for its greeting may be one that the listener's kernel
# has forgotten (its queue was full).
_ATTEMPT_S = 10.0
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 1.0


def dial(
    address: str, port: int, round_number: int, secret: bytes, label: Label, timeout_s: float
) -> socket.socket:
    """Connect, authenticate both ends, and return the connection: blocking, with TCP_NODELAY.

    A listener that has no place, or no descriptor, resets the connection: then it is tried again
    after a pause, which grows, until the time is over. Where nobody listens, it fails at once.

    Args:
        address, port: of the listener; round_number, secret, label: the handshake's parameters.
        timeout_s: for all of it, seconds.

    Raises:
        OSError: refused, or no success for `timeout_s`.
        NoRoute: the routing table has no route to the address.
        PermissionError: one of the two ends does not know the secret.
    """
    until_s, pause_s = time.monotonic() + timeout_s, _FIRST_PAUSE_S
    while True:
        attempt_until_s = min(until_s, time.monotonic() + _ATTEMPT_S)
        try:
            return _dial_once(address, port, round_number, secret, label, attempt_until_s)
        except (ConnectionResetError, BrokenPipeError, TimeoutError):
            # All who were reset together must not come back together.
            wait_s = pause_s * random.uniform(0.3, 1.0)  # noqa: S311 (a pause, not a secret)
            if time.monotonic() + wait_s >= until_s:
                raise
            time.sleep(wait_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


def _dial_once(
    address: str, port: int, round_number: int, secret: bytes, label: Label, until_s: float
) -> socket.socket:
    connection = _connect(address, port, max(until_s - time.monotonic(), 0.001))
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        greeted = _exactly(connection, handshake.GREETING_BYTES, until_s)
        if greeted is None:
            raise ConnectionResetError("closed before the handshake")
        if not greeted.startswith(handshake.BANNER):
            raise PermissionError("something other than relkit answers on the port")
        answered = handshake.answer(secret, round_number, greeted, label)
        connection.sendall(answered)
        confirmation = _exactly(connection, handshake.CONFIRMATION_BYTES, until_s)
        if confirmation is None:
            raise PermissionError("the other end rejected the handshake")
        if not handshake.check_confirmation(secret, round_number, greeted, answered, confirmation):
            raise PermissionError("the other end does not know the secret")
        connection.settimeout(None)
    except OSError:
        connection.close()
        raise
    return connection


def _connect(address: str, port: int, timeout_s: float) -> socket.socket:
    try:
        return socket.create_connection((address, port), timeout_s)
    except (ConnectionError, TimeoutError):
        raise
    except OSError:
        # Only the routing table knows whether a route is missing or the peer does not answer.
        own_address(address)
        raise


def _exactly(connection: socket.socket, size: int, until_s: float) -> bytes | None:
    """That many bytes; None where the other end closes the connection before."""
    received = bytearray()
    while len(received) < size:
        connection.settimeout(max(until_s - time.monotonic(), 0.001))
        part = connection.recv(size - len(received))
        if not part:
            return None
        received += part
    return bytes(received)
