"""Real processes to capture: each says when it is where the test wants it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from relkit.process import procfs
from relkit.stacks.engines.base import Target
from tests.patience import PATIENCE

LOCKED = """
import threading
lock = threading.Lock()
lock.acquire()
def wait_for_the_lock():
    lock.acquire()
threading.Thread(target=wait_for_the_lock, name="my-loader", daemon=True).start()
print("up", flush=True)
wait_for_the_lock()
"""

# The main thread waits for a lock below Python code that C code called, three times over.
NESTED = """
import ctypes, functools, threading
lock = threading.Lock()
lock.acquire()
def wait_for_the_lock():
    lock.acquire()
def add(total, number):
    wait_for_the_lock()
def order(number):
    return by_sum(number)
def by_sum(number):
    return functools.reduce(add, [number, 1])
@ctypes.CFUNCTYPE(None)
def callback():
    sort()
def sort():
    [1, 2].sort(key=order)
def work():
    callback()
print("up", flush=True)
work()
"""

# Prints a growing number for ever, so that whoever reads it knows that the process goes on.
BEATING = """
import itertools, threading
from time import sleep
def beat():
    for number in itertools.count():
        print(number, flush=True)
        sleep(0.01)
print("up", flush=True)
threading.Thread(target=beat, name="beat").start()
"""

# posix_spawn holds its caller in uninterruptible sleep (vfork) until the child has opened the
# fifo and called exec.
UNINTERRUPTIBLE = """
import os, sys
print("up", flush=True)
os.posix_spawn("/bin/true", ["true"], {}, file_actions=[
    (os.POSIX_SPAWN_OPEN, 3, sys.argv[1], os.O_RDONLY, 0)])
print("woken", flush=True)
sys.stdin.readline()
"""

UNREADABLE = """
import ctypes, sys
ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE off: nobody without rights may look
print("up", flush=True)
sys.stdin.readline()
"""


def until(condition: Callable[[], object], what: str, timeout_s: float = 10.0) -> None:
    """Poll until the condition holds; fail with `what` at the deadline."""
    end = time.monotonic() + timeout_s * PATIENCE
    while not condition():
        assert time.monotonic() < end, f"not within {timeout_s} s: {what}"
        time.sleep(0.002)


def settled(pid: int, *, main_only: bool = False) -> None:
    """Wait until all threads (or the main one) sleep on a lock and do not run any more."""

    def still() -> bool:
        chosen = [f for f in procfs.threads(pid) if f.os_thread_id == pid or not main_only]
        asleep = all(facts.wchan.startswith("futex") for facts in chosen)
        after = procfs.moves(pid)
        return asleep and all(after.get(f.os_thread_id) == (f.state, f.switches) for f in chosen)

    until(still, "asleep on a lock")


@contextlib.contextmanager
def locked() -> Iterator[subprocess.Popen[bytes]]:
    """A process whose main thread and "my-loader" thread wait for a lock for ever."""
    with running(LOCKED) as process:
        settled(process.pid)
        yield process


@contextlib.contextmanager
def running(
    script: str, *arguments: str, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A Python process that runs the script and has said "up"; killed at the end."""
    process = subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        yield process
    finally:
        process.kill()
        process.communicate()


@contextlib.contextmanager
def uninterruptible(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], Callable[[], None]]]:
    """A process whose main thread is in D state, and the function that wakes it."""
    fifo = folder / "gate"
    os.mkfifo(fifo)
    with running(UNINTERRUPTIBLE, str(fifo)) as process:
        until(lambda: procfs.process_state(process.pid).startswith("D"), "D state")
        opened: list[int] = []

        def wake() -> None:
            if not opened:
                opened.append(os.open(fifo, os.O_RDWR))

        try:
            yield process, wake
        finally:
            wake()
            until(lambda: not procfs.process_state(process.pid).startswith("D"), "awake")
            os.close(opened[0])


def target(pid: int, rank: int = 0, world_size: int = 1) -> Target:
    """A Target of this host."""
    return Target(pid, rank, world_size, "here", "job", start_ticks=procfs.start_ticks(pid))


def is_stopped(pid: int) -> bool:
    """A thread of the process is in T or t state."""
    return any(facts.state in "Tt" for facts in procfs.threads(pid))


def still_beats(process: subprocess.Popen[bytes]) -> bool:
    """Numbers newer than now come from a BEATING process."""
    assert process.stdout is not None
    os.set_blocking(process.stdout.fileno(), False)
    while process.stdout.read():
        pass  # what it printed until now
    end = time.monotonic() + 10
    while time.monotonic() < end:
        if process.stdout.read():
            return True
        time.sleep(0.01)
    return False


def resume(pid: int) -> None:
    """SIGCONT."""
    os.kill(pid, signal.SIGCONT)
