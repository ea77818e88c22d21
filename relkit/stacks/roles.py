"""What a thread is for, from its name and its stack."""

from __future__ import annotations

import re
from collections.abc import Iterable

from relkit.stacks.model import Frame, Role

# The first row that matches wins; a watchdog of the communication library is a watchdog.
_BY_NAME: tuple[tuple[tuple[str, ...], Role], ...] = (
    (("pt_autograd",), Role.AUTOGRAD),
    (("watchdog", "heartbeat", "monitor", "pt_nccl_watchd", "pt_nccl_heartb"), Role.WATCHDOG),
    (("pt_gloo", "gloo", "nccl", "mccl", "rccl", "hccl", "ucx", "pt_tcpstore"), Role.COMMUNICATION),
    (("dataloader", "_pin_memory", "pin_memory", "pt_data", "prefetch", "queuefeeder", "loader"),
     Role.LOADER),
    (("openblas", "omp", "gomp", "mkl", "iomp", "pt_inter_op", "jemalloc_bg"), Role.COMPUTE),
)  # fmt: skip

_BY_FRAME: tuple[tuple[tuple[str, ...], Role], ...] = (
    (("torch::autograd::Engine::", "torch::autograd::python::PythonEngine::thread_"),
     Role.AUTOGRAD),
    (("::watchdogHandler", "Watchdog::run", "HeartbeatMonitor::", "::heartbeatMonitor"),
     Role.WATCHDOG),
    (("ProcessGroupGloo::runLoop", "gloo::transport::tcp::Loop::", "c10d::detail::TCPStore",
      "BackgroundThread::run", "ncclProxy", "ncclLocalCollect", "persistentThread"),
     Role.COMMUNICATION),
    (("_pin_memory_loop", "_worker_loop", "at::DataLoader"), Role.LOADER),
    (("gomp_thread_start", "gomp_team_barrier", "gomp_barrier_wait", "__kmp_launch_worker",
      "__kmp_launch_thread", "blas_thread_server", "mkl_serv_", "tbb::",
      "c10::ThreadPool::main_loop"),
     Role.COMPUTE),
)  # fmt: skip


# No data loaders, although the word is in their names.
_TRANSFERS = re.compile("(up|down)loader")
# Pools whose libraries are often stripped: their file is on the outermost frames all the same.
_COMPUTE_FILES = ("libgomp", "libiomp", "libomp", "libopenblas", "libtbb", "libmkl")
_OUTERMOST = 5


def role_of(name: str, frames: Iterable[Frame], is_main: bool = False) -> Role:
    """The role of a thread.

    Args:
        name: thread name, native (comm) or Python.
        frames: its stack, any order.
        is_main: its thread id is the process id.
    """
    if is_main:
        return Role.MAIN
    return role_of_name(name) or role_of_frames(frames)


def role_of_name(name: str) -> Role | None:
    """The role that a thread's name tells, None where it tells nothing."""
    lowered = _TRANSFERS.sub("", name.lower())
    for marks, role in _BY_NAME:
        if any(mark in lowered for mark in marks):
            return role
    return None


def role_of_frames(frames: Iterable[Frame]) -> Role:
    """The role that a stack tells; OTHER where it tells nothing."""
    stack = tuple(frames)
    functions = [frame.func for frame in stack]
    for marks, role in _BY_FRAME:
        if any(mark in function for mark in marks for function in functions):
            return role
    files = [frame.source.rpartition("/")[2] for frame in stack[-_OUTERMOST:]]
    if any(name.startswith(_COMPUTE_FILES) for name in files):
        return Role.COMPUTE
    return Role.OTHER
