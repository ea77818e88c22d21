"""The simulated devices themselves, without the hook: they must be worth testing against."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.native.builds import HookBuild
from tests.native.platforms.runs import Bench, client, ranks
from tests.native.simulated import PLATFORMS

pytestmark = [pytest.mark.native, pytest.mark.timeout(60)]

OFF = {"RELKIT_HOOK_DISABLE": "1"}

# A program on the CUDA double, by ctypes: MS is a millisecond.
PREAMBLE = """
import ctypes, sys, threading
from ctypes import byref, c_float, c_int, c_int64, c_uint64, c_void_p
rt = ctypes.CDLL(sys.argv[1] + "/libcudart.so.13")
sim = ctypes.CDLL(sys.argv[1] + "/libsimdevice.so")
sim.sim_counted.restype = c_int64
MS = 1_000_000
class Dim(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint) for name in "xyz"]
ONE = Dim(1, 1, 1)
def made(function):
    handle = c_void_p()
    assert function(byref(handle)) == 0
    return handle
def launch(stream, length_ns):
    length = c_uint64(length_ns)
    arguments = (c_void_p * 1)(ctypes.addressof(length))
    return rt.cudaLaunchKernel(c_void_p(1), ONE, ONE, arguments, ctypes.c_size_t(0), stream)
def elapsed_ms(first, second):
    ms = c_float()
    assert rt.cudaEventElapsedTime(byref(ms), first, second) == 0
    return ms.value
"""

QUEUE = """
stream, events = made(rt.cudaStreamCreate), [made(rt.cudaEventCreate) for _ in range(3)]
assert sim.sim_hold(stream) == 0
rt.cudaEventRecord(events[0], stream)
launch(stream, 7 * MS)
rt.cudaEventRecord(events[1], stream)
launch(stream, 2 * MS)
rt.cudaEventRecord(events[2], stream)
assert rt.cudaEventQuery(events[2]) == rt.cudaGetLastError() == 600
sim.sim_let_go()
assert rt.cudaStreamSynchronize(stream) == 0
print(round(elapsed_ms(events[0], events[1]), 3), round(elapsed_ms(events[2], events[0]), 3))
"""

CAPTURE = """
stream, event, graph = made(rt.cudaStreamCreate), made(rt.cudaEventCreate), c_void_p()
rt.cudaEventRecord(event, None)
def ask(relaxed):
    if relaxed:
        rt.cudaThreadExchangeStreamCaptureMode(byref(c_int(2)))
    states.append(rt.cudaEventQuery(event))
for relaxed in (True, False):
    states = []
    assert rt.cudaStreamBeginCapture(stream, 0) == 0
    launch(stream, MS)
    asking = threading.Thread(target=ask, args=[relaxed])
    asking.start()
    asking.join()
    print(*states, rt.cudaStreamEndCapture(stream, byref(graph)))
"""

MISUSE = """
event = made(rt.cudaEventCreate)
print(sim.sim_counted(0), sim.sim_counted(3))
rt.cudaEventDestroy(event)
print(sim.sim_counted(0), rt.cudaEventQuery(event), sim.sim_counted(3))
"""

ELSEWHERE = """
first, second = made(rt.cudaStreamCreate), made(rt.cudaStreamCreate)
event = made(rt.cudaEventCreate)
ends = [made(rt.cudaEventCreate) for _ in range(2)]
assert sim.sim_hold(first) == sim.sim_hold(second) == 0
launch(first, 9 * MS)
rt.cudaEventRecord(event, first)
rt.cudaStreamWaitEvent(second, event, 0)
launch(second, 3 * MS)
rt.cudaEventRecord(ends[0], first)
rt.cudaEventRecord(ends[1], second)
sim.sim_let_go()
assert rt.cudaDeviceSynchronize() == 0
print(round(elapsed_ms(*ends), 3))
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("script", "said"),
    [
        (QUEUE, ["7.0 -9.0"]),
        (CAPTURE, ["0 0", "900 901"]),
        (MISUSE, ["1 0", "0 400 1"]),
        (ELSEWHERE, ["3.0"]),
    ],
    ids=["queue", "capture", "misuse", "streams"],
)
def test_streams_events_and_capture(bench: Bench, script: str, said: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PREAMBLE + script, str(bench.folder)],
        env={name: value for name, value in os.environ.items() if name != "LD_PRELOAD"},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == said


@pytest.mark.parametrize("platform", PLATFORMS)
def test_work_takes_the_time_that_it_is_given(bench: Bench, tmp_path: Path, platform: str) -> None:
    command = [str(bench.program(HookBuild("plain"), platform)), "work"]
    with client(command, HookBuild("plain"), tmp_path, **OFF) as run:
        run.listen()
        lengths = [words["length_ns"] for words in run.all_said("work")]
        assert [end - start for _, _, start, end in run.traced()] == lengths
        starts = [start for _, _, start, _ in run.traced()]
        ends = [end for _, _, _, end in run.traced()]
        assert starts[1:] == ends[:-1]
        run.end()


@pytest.mark.parametrize("platform", PLATFORMS)
def test_a_collective_ends_on_both_ranks_when_the_last_has_come(
    bench: Bench, tmp_path: Path, platform: str
) -> None:
    build = HookBuild("plain")
    program = bench.program(build, platform)
    with ranks(program, "transfers", build=build, folder=tmp_path, **OFF) as pair:
        for run in pair:
            run.end()
        first, second = (
            [row for row in run.traced() if row[0] == "allreduce" and row[1] == 4000]
            for run in pair
        )
    for (_, _, start, end), (_, _, other_start, other_end) in zip(first, second, strict=True):
        assert end == other_end == max(start, other_start) + 4_000_000


def test_sonames_and_symbol_versions_are_those_of_the_real_libraries(bench: Bench) -> None:
    for wanted, library in (
        ("cudaLaunchKernel@@libcudart.so.13", "libcudart.so.13"),
        ("cublasGemmEx@@libcublas.so.13", "libcublas.so.13"),
        ("hipLaunchKernel@@hip_4.2", "libamdhip64.so.6"),
        ("ncclAllReduce", "libnccl.so.2"),
        ("cuLaunchKernel", "libcuda.so.1"),
        ("HcclAllReduce", "libhccl.so"),
    ):
        path = str(bench.folder / library)
        symbols = _output("nm", "-D", "--defined-only", path)
        assert wanted in [line.split()[-1] for line in symbols]
        assert any(f"soname: [{library}]" in line for line in _output("readelf", "-d", path))


def _output(*command: str) -> list[str]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    return done.stdout.splitlines()
