"""The door of a listener: who is silent gives way, and no descriptor is no reason to spin."""

from __future__ import annotations

import resource
import selectors
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from relkit.net import door as door_module
from relkit.net import handshake
from relkit.net.dial import dial
from relkit.net.file_limit import FileLimit
from relkit.net.gate import Gate
from relkit.net.handshake import CONTROL, Label
from tests.patience import PATIENCE

SECRET = bytes(range(32))


class Door:
    """A gate, and the thread that runs its selector."""

    def __init__(self, max_pending: int = 4) -> None:
        self.admitted: list[socket.socket] = []
        self.logged: list[str] = []
        self._selector = selectors.DefaultSelector()
        listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = listener.getsockname()[1]
        check = partial(handshake.check_answer, SECRET, 0)
        self.gate = Gate(
            listener, self._selector, check, self._admit, max_pending=max_pending,
            log=self.logged.append,
        )  # fmt: skip
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _admit(self, _label: Label, connection: socket.socket) -> None:
        self.admitted.append(connection)

    def _run(self) -> None:
        while not self._over.is_set():
            for key, _ in self._selector.select(0.02):
                self.gate.serve(key.fd)
            self.gate.tick(time.monotonic())

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        self.gate.close()
        self._selector.close()
        for connection in self.admitted:
            connection.close()


@pytest.fixture
def door() -> Iterator[Door]:
    opened = Door()
    yield opened
    opened.close()


@pytest.fixture
def opened() -> Iterator[list[socket.socket]]:
    sockets: list[socket.socket] = []
    yield sockets
    for each in sockets:
        each.close()


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 10 * PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def silent(door: Door, source: str = "127.0.0.1") -> socket.socket:
    return socket.create_connection(("127.0.0.1", door.port), 10, (source, 0))


def is_reset(connection: socket.socket) -> bool:
    """The other end has dropped it; False where it ended it in the ordinary way."""
    connection.settimeout(10 * PATIENCE)
    try:
        while connection.recv(4096):
            pass
    except ConnectionResetError:
        return True
    return False


def test_the_oldest_gives_way(door: Door, opened: list[socket.socket]) -> None:
    for number in range(4):
        opened.append(silent(door))
        until(lambda wanted=number + 1: door.gate.pending == wanted)  # type: ignore[misc]
    opened.append(dial("127.0.0.1", door.port, 0, SECRET, CONTROL, 10))
    assert is_reset(opened[0])
    until(lambda: door.gate.pending == 3)
    assert door.gate.unauthenticated == 1


def test_whoever_holds_most_places_gives_one_up(
    door: Door, opened: list[socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    # On loopback all addresses are one origin; here each stands for a host.
    monkeypatch.setattr(door_module, "_origin", str)
    for number, source in enumerate(["127.0.0.2", *["127.0.0.3"] * 3]):
        opened.append(silent(door, source))
        until(lambda wanted=number + 1: door.gate.pending == wanted)  # type: ignore[misc]
    opened.append(silent(door, "127.0.0.4"))
    # Not the oldest of all, which has one place only.
    assert is_reset(opened[1])
    until(lambda: door.gate.pending == 4)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("127.0.0.1", "127.9.8.7", True),
        ("127.0.0.1", "::1", True),
        ("10.0.0.1", "10.0.0.2", False),
        ("fd00::1", "fd00::ffff:2", True),
        ("fe80::1%eth0", "fe80::2%eth0", True),
        ("fd00::1", "fd00:0:0:1::1", False),
    ],
)
def test_what_counts_as_one_origin(one: str, other: str, same: bool) -> None:
    assert (door_module._origin(one) == door_module._origin(other)) is same


def test_who_was_reset_comes_again(door: Door, opened: list[socket.socket]) -> None:
    """Twenty honest ones at once, and four places."""
    failed: list[OSError] = []

    def come() -> None:
        try:
            opened.append(dial("127.0.0.1", door.port, 0, SECRET, CONTROL, 20 * PATIENCE))
        except OSError as error:
            failed.append(error)

    threads = [threading.Thread(target=come) for _ in range(20)]
    idle = [silent(door) for _ in range(50)]
    opened += idle
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    until(lambda: len(door.admitted) == 20)


def test_who_says_nothing_loses_the_place_in_time() -> None:
    """The gate alone, on a clock of the test's."""
    admitted: list[socket.socket] = []
    listener = socket.create_server(("127.0.0.1", 0))
    with selectors.DefaultSelector() as selector:
        check = partial(handshake.check_answer, SECRET, 0)
        gate = Gate(listener, selector, check, lambda _, came: admitted.append(came))
        with socket.create_connection(listener.getsockname(), 10) as quiet:
            assert selector.select(10 * PATIENCE)
            before_s = time.monotonic()
            gate.serve(listener.fileno())
            after_s = time.monotonic()
            gate.tick(before_s + door_module.HANDSHAKE_S - 0.001)
            assert (gate.pending, gate.unauthenticated) == (1, 0)
            gate.tick(after_s + door_module.HANDSHAKE_S)
            assert (gate.pending, gate.unauthenticated) == (0, 1)
            # Addresses come and go for as long as the job runs: none is kept.
            assert not gate._origins
            assert is_reset(quiet)
        gate.close()
    assert not admitted


def test_a_wrong_secret_is_final(door: Door) -> None:
    began_s = time.monotonic()
    with pytest.raises(PermissionError, match="rejected"):
        dial("127.0.0.1", door.port, 0, b"x" * 32, CONTROL, 60)
    assert time.monotonic() - began_s < 30
    assert door.gate.unauthenticated == 1


_EXHAUSTED = """
import os, resource, selectors, socket, sys, threading, time
from functools import partial
from relkit.net import handshake
from relkit.net.gate import Gate
from relkit.net.handshake import CONTROL
secret, logged, admitted, turns = bytes(32), [], [], 0
listener = socket.create_server(("127.0.0.1", 0))
selector = selectors.DefaultSelector()
check = partial(handshake.check_answer, secret, 0)
gate = Gate(listener, selector, check, lambda _, s: admitted.append(s), log=logged.append)
taken = [os.open("/dev/null", os.O_RDONLY) for _ in range(50)]
LIMITED
print(listener.getsockname()[1], flush=True)
until_s = time.monotonic() + 2.0
while time.monotonic() < until_s or not logged:
    turns += 1
    for key, _ in selector.select(gate.wait_s(time.monotonic())):
        gate.serve(key.fd)
    gate.tick(time.monotonic())
print(turns, len(logged), len(admitted), flush=True)
for handle in taken:
    os.close(handle)
while not admitted:
    for key, _ in selector.select(gate.wait_s(time.monotonic())):
        gate.serve(key.fd)
    gate.tick(time.monotonic())
print(len(admitted), flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("spare", [0, 10], ids=["none-left", "reserve-left"])
def test_without_a_descriptor_it_waits_and_then_goes_on(spare: int) -> None:
    limited = f"resource.setrlimit(resource.RLIMIT_NOFILE, (max(taken) + 1 + {spare}, 4096))"
    host = subprocess.Popen(
        [sys.executable, "-c", _EXHAUSTED.replace("LIMITED", limited)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert host.stdout is not None
    try:
        port = int(host.stdout.readline())
        links: list[socket.socket] = []
        come = threading.Thread(
            target=lambda: links.append(dial("127.0.0.1", port, 0, bytes(32), CONTROL, 60))
        )
        come.start()
        turns, logged, admitted = map(int, host.stdout.readline().split())
        assert (logged, admitted) == (1, 0)
        # Two seconds at five looks a second, each with a turn for what had come; a spin is 10^5.
        assert turns < 60
        assert host.stdout.readline() == "1\n"
        come.join()
        assert len(links) == 1
        links[0].close()
    finally:
        host.communicate()


def test_the_limit_is_raised_for_this_process_alone() -> None:
    """In a process of its own: a hard limit that was lowered stays low."""
    script = """
import resource, subprocess, sys
from relkit.net.file_limit import FileLimit
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 600))
limit = FileLimit()
print(limit.require(500) == "", resource.getrlimit(resource.RLIMIT_NOFILE))
child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
limit.give_back_to(child.pid)
print(resource.prlimit(child.pid, resource.RLIMIT_NOFILE))
child.communicate()
print(limit.require(1000))
print(resource.getrlimit(resource.RLIMIT_NOFILE))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    first, child, warning, last = done.stdout.splitlines()
    assert (first, child, last) == ("True (500, 600)", "(256, 600)", "(600, 600)")
    assert "may have 600 files open, and needs 1000" in warning
    assert "LimitNOFILE=1000" in warning


def test_a_limit_that_is_high_enough_is_left_alone() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert FileLimit().require(10) == ""
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == before
