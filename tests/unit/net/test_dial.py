"""Where nobody can be reached, what is wrong is told."""

from __future__ import annotations

import errno
import socket

import pytest

from relkit.net import dial
from relkit.net.handshake import CONTROL
from relkit.net.interface import NoRoute


def refuse(monkeypatch: pytest.MonkeyPatch, error: OSError, *, has_route: bool) -> None:
    def connect(address: tuple[str, int], timeout_s: float) -> socket.socket:
        raise error

    def own_address(address: str) -> str:
        if not has_route:
            raise NoRoute(f"no route to {address}")
        return "10.0.0.1"

    monkeypatch.setattr(socket, "create_connection", connect)
    monkeypatch.setattr(dial, "own_address", own_address)


@pytest.mark.parametrize(
    ("number", "has_route", "raised"),
    [
        (errno.EHOSTUNREACH, False, NoRoute),
        (errno.EHOSTUNREACH, True, OSError),
        # Somebody has answered, so there is a route.
        (errno.ECONNREFUSED, False, ConnectionRefusedError),
    ],
)
def test_a_missing_route_is_told_from_a_peer_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch, number: int, raised: type[Exception], *, has_route: bool
) -> None:
    refuse(monkeypatch, OSError(number, "words"), has_route=has_route)
    with pytest.raises(raised) as caught:
        dial.dial("10.0.0.9", 5, 0, b"x" * 16, CONTROL, 10.0)
    assert type(caught.value) is raised
