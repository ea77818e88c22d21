"""A collector that is killed in the middle never leaves its target stopped."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading

import psutil
import pytest

from relkit.errors import CaptureFailed
from relkit.process import procfs
from relkit.stacks.engines.pyspy_native import PySpyNativeEngine
from tests.native.capture.targets import BEATING, is_stopped, running, still_beats, target, until

_CAPTURE = """
import sys
from relkit.stacks.engines.base import Target
from relkit.stacks.engines.pyspy_native import PySpyNativeEngine
while True:
    PySpyNativeEngine().native(Target(int(sys.argv[1]), 0, 1, "here", "job"), 10)
"""


def _kill_tracer(pid: int) -> None:
    """Kill whoever traces the process just now, and nobody who has its number since."""
    tracer = procfs.tracer(pid)
    with contextlib.suppress(OSError):
        if not tracer or tracer == os.getpid():
            return
        handle = os.pidfd_open(tracer)
        try:
            if procfs.tracer(pid) == tracer:
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        finally:
            os.close(handle)


def test_the_tracer_itself_is_killed() -> None:
    with running(BEATING) as process:
        failures: list[str] = []

        def capture() -> None:
            # Until it was hit: a capture may be over before the kill arrives.
            while not failures:
                try:
                    PySpyNativeEngine().native(target(process.pid), 10)
                except CaptureFailed as error:
                    failures.append(str(error))

        worker = threading.Thread(target=capture)
        worker.start()
        while worker.is_alive():
            _kill_tracer(process.pid)
        worker.join()
        until(lambda: not is_stopped(process.pid), "the target goes on")
        assert still_beats(process)
        assert len(failures) == 1


def test_relkit_is_killed_while_its_collector_traces() -> None:
    with running(BEATING) as process:
        relkit = subprocess.Popen([sys.executable, "-c", _CAPTURE, str(process.pid)])
        try:
            until(lambda: procfs.tracer(process.pid), "a tracer at work")
            helpers = psutil.Process(relkit.pid).children(recursive=True)
        finally:
            relkit.kill()
            relkit.wait()
        # The guard and its collector finish by themselves, without their parent.
        _, alive = psutil.wait_procs(helpers, timeout=15)
        assert not alive
        until(lambda: not is_stopped(process.pid), "the target goes on")
        assert still_beats(process)


def test_two_collectors_take_turns_at_one_process() -> None:
    with running(BEATING) as process:
        found: list[int] = []
        workers = [
            threading.Thread(
                target=lambda: found.append(
                    len(PySpyNativeEngine().native(target(process.pid), 20).threads)
                )
            )
            for _ in range(3)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    assert found == [2, 2, 2]


@pytest.mark.gdb
def test_a_traced_process_is_left_alone() -> None:
    gdb = ["gdb", "-q", "-nx", "-p"]
    with running(BEATING) as process:
        debugger = subprocess.Popen(
            [*gdb, str(process.pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            until(lambda: procfs.tracer(process.pid), "gdb attached")
            with pytest.raises(CaptureFailed, match="being traced by process"):
                PySpyNativeEngine().native(target(process.pid), 5)
        finally:
            debugger.communicate(b"detach\nquit\n", timeout=30)
        assert still_beats(process)
