"""No thread that comes back late spoils the end of a process."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import atexit, os, signal, sys, threading, types
from concurrent.futures import ThreadPoolExecutor
from relkit.process.process_exit import leave

class Global:
    def __del__(self, print=print):
        print("taken down")

# Not of this module, which lives as long as the thread runs.
sys.modules["other"] = types.ModuleType("other")
sys.modules["other"].kept = Global()
# A thread of the pool waits for work, until the interpreter ends.
pool = ThreadPoolExecutor(1)
pool.submit(int).result()
atexit.register(print, "atexit")
begun, handled = threading.Event(), threading.Event()

STUCK = ("stuck", "interrupted")

def call(begun=begun, is_stuck=sys.argv[1] in STUCK, wait=threading.Event().wait):
    begun.set()
    if is_stuck:
        wait()

def interrupt(main=threading.main_thread().ident):
    while sys._current_frames()[main].f_code.co_name != "_shutdown":
        os.sched_yield()
    # One may come just before the wait, and not end it.
    while not handled.wait(0.05):
        signal.pthread_kill(main, signal.SIGINT)
    threading.Event().wait()

def interrupted(*_):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    handled.set()
    raise KeyboardInterrupt

signal.signal(signal.SIGINT, interrupted)
if sys.argv[1] == "interrupted":
    threading.Thread(target=interrupt).start()
thread = threading.Thread(target=call, daemon=True)
thread.start()
begun.wait()
if sys.argv[1] in ("returned", "torch"):
    thread.join()
if sys.argv[1] == "torch":
    import torch
sys.stdout.write("not flushed\\n")
leave(3)
"""


@pytest.mark.parametrize(
    ("kind", "output"),
    [
        ("stuck", ["not flushed", "atexit"]),
        ("interrupted", ["not flushed", "atexit"]),
        ("returned", ["not flushed", "atexit", "taken down"]),
        ("torch", ["not flushed", "atexit"]),
    ],
)
def test_the_interpreter_is_taken_down_only_where_no_thread_can_come_back(
    kind: str, output: list[str]
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, kind],
        capture_output=True, text=True, timeout=50, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout.splitlines()) == (3, output), done.stderr
