"""On request all launches of some steps are timed, not one in many."""

from __future__ import annotations

import subprocess
import sys

import pytest

from relkit.hook.model import HookState
from relkit.hook.reader import read_state
from relkit.hook.time_steps import time_steps
from tests.native.hook_victims import Recording, eventually
from tests.native.platform_runs import Bench

pytestmark = pytest.mark.native

# Three steps of five launches, each of which takes no time, for a line of input.
VICTIM = """
import ctypes, os, sys
from relkit.hook.marks import mark_step
class Dim3(ctypes.Structure):
    _fields_ = [("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint)]
runtime = ctypes.CDLL(os.environ["RUNTIME"])
one, stream = Dim3(1, 1, 1), ctypes.c_void_p()
length_ns = ctypes.c_uint64(1000)
arguments = (ctypes.c_void_p * 1)(ctypes.addressof(length_ns))
runtime.cudaLaunchKernel.argtypes = [
    ctypes.c_void_p, Dim3, Dim3, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
assert runtime.cudaStreamCreate(ctypes.byref(stream)) == 0
kernel = ctypes.create_string_buffer(8)
def step(number):
    mark_step(number)
    for _ in range(5):
        assert runtime.cudaLaunchKernel(
            ctypes.addressof(kernel), one, one, ctypes.addressof(arguments), 0, stream) == 0
    assert runtime.cudaStreamSynchronize(stream) == 0
step(0)
print("up", flush=True)
sys.stdin.readline()
for number in range(1, 4):
    step(number)
print("done", flush=True)
sys.stdin.readline()
"""


def _settled(state: HookState) -> bool:
    return state.started == state.finished


def test_all_launches_of_the_steps_that_were_asked_for(bench: Bench, recording: Recording) -> None:
    runtime = str(bench.folder / "libcudart.so.13")
    environment = {**recording.environment(), "RUNTIME": runtime}
    with subprocess.Popen(
        [sys.executable, "-c", VICTIM],
        env=environment,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as victim:
        try:
            assert victim.stdin is not None
            assert victim.stdout is not None
            assert victim.stdout.readline() == "up\n"
            path = recording.path(victim.pid)
            state = read_state(path)
            assert not [op for op in state.recent if op.name == "launch"]
            time_steps(path, state, 2)
            victim.stdin.write("go\n")
            victim.stdin.flush()
            assert victim.stdout.readline() == "done\n"
            eventually(lambda: _settled(read_state(path)), "all launches have ended")
            seen = read_state(path)
            launches = [op for op in seen.recent if op.name == "launch"]
            assert len(launches) == 10
            assert all(op.enqueue_ns <= op.start_ns < op.end_ns for op in launches)
        finally:
            victim.kill()


@pytest.mark.parametrize("steps", [-1, 1001])
def test_a_number_of_steps_that_is_none(recording: Recording, steps: int) -> None:
    recording.run("load().fake_gemms(1)")
    state = recording.only_state()
    with pytest.raises(ValueError, match="0 to 1000"):
        time_steps(recording.path(state.pid), state, steps)
