"""Who has no key takes few descriptors of a launcher, and keeps out and ends nobody who has it."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from relkit.launch.control.frame import BeatUp, encode
from relkit.launch.control.sockets import LinkSockets
from tests.patience import PATIENCE
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(120 * PATIENCE)
LOOPBACK = "127.0.0.1"
KEY = bytes(range(32))
# More than the launcher below may have open.
STRANGERS = 400

# Answers whoever has the key, and says whether a file could be opened all the while.
_LAUNCHER = """
import resource, select, sys
from relkit.launch.control.sockets import LinkSockets
resource.setrlimit(resource.RLIMIT_NOFILE, (320, 320))
sockets = LinkSockets()
print(sockets.listen("127.0.0.1", bytes(range(32))), flush=True)
while not select.select([sys.stdin], [], [], 0)[0]:
    sockets.wait(0.05)
    for child, frame in sockets.from_below():
        sockets.send_down(child, frame)
    open("/proc/self/stat").close()
sockets.close()
print("well")
"""
_GREETING = b"\xff" + bytes(8) + b"\x7f"
_CURVE = _GREETING + b"\x03\x01CURVE" + bytes(15) + b"\x00" + bytes(31)
_HELLO = b"\x04\xc8\x05HELLO\x01\x00" + bytes(192)


class Launcher:
    """A process that answers those who have the key.

    Args:
        port: where.
    """

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _LAUNCHER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    def end(self) -> str:
        said, _ = self._process.communicate(timeout=60 * PATIENCE)
        return said


@pytest.fixture
def launcher() -> Iterator[Launcher]:
    made = Launcher()
    yield made
    with suppress(ValueError):
        made.end()


def until_answered(link: LinkSockets) -> None:
    def is_answered() -> bool:
        link.send_up(0, encode(BeatUp(1, True)))
        link.wait(0.02)
        return bool(list(link.from_above()))

    eventually(is_answered, "an answer", timeout_s=60.0)


@contextmanager
def linked(launcher: Launcher) -> Iterator[LinkSockets]:
    link = LinkSockets()
    try:
        link.connect(0, (LOOPBACK, launcher.port), KEY)
        until_answered(link)
        yield link
    finally:
        link.close()


@contextmanager
def strangers(port: int, says: bytes) -> Iterator[None]:
    """More than there may be, each of which comes again once it has been sent away."""
    is_over, have_come = threading.Event(), threading.Event()

    def come_again() -> None:
        here: list[socket.socket] = []
        comings: list[int] = []
        while not is_over.is_set():
            here = [each for each in here if _is_open(each)]
            while len(here) < STRANGERS and not is_over.is_set():
                with suppress(OSError):
                    here.append(socket.create_connection((LOOPBACK, port), 1.0))
                    here[-1].sendall(says)
                    here[-1].setblocking(False)
                comings.append(1)
                if len(comings) > 2 * STRANGERS:
                    have_come.set()
            is_over.wait(0.05)
        for each in here:
            each.close()

    thread = threading.Thread(target=come_again)
    thread.start()
    try:
        eventually(have_come.is_set, "strangers", timeout_s=60.0)
        yield
    finally:
        is_over.set()
        thread.join()


def _is_open(connection: socket.socket) -> bool:
    try:
        connection.setblocking(False)
        if connection.recv(4096):
            return True
    except BlockingIOError:
        return True
    except OSError:
        pass
    connection.close()
    return False


@pytest.mark.parametrize(
    "says",
    [b"", b"\xff", b"GET / HTTP/1.1\r\n\r\n", _GREETING, _CURVE, _CURVE + _HELLO],
    ids=["nothing", "a-byte", "http", "greeting", "mechanism", "hello"],
)
def test_who_has_no_key_takes_few_descriptors_and_keeps_nobody_out(
    launcher: Launcher, says: bytes
) -> None:
    with linked(launcher) as before:
        with strangers(launcher.port, says):
            for _ in range(50):
                until_answered(before)
            with linked(launcher) as during:
                until_answered(before)
                until_answered(during)
        with linked(launcher):
            until_answered(before)
    assert launcher.end() == "well\n"
