"""Synthetic dump files for benchmarks/stacks/merge.py: many ranks of one hung job, written fast."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from relkit.errors import RelkitError
from relkit.stacks import wire
from relkit.stacks.dumpfile import decode, encode, file_name
from relkit.stacks.model import Frame, RankDump, Role, ThreadStack

NATIVE_THREADS = 40
PYTHON_THREADS = 6
# Ranks that are somewhere else, at any world size.
ODD_RANKS = (7, 130, 131, 777)

_SITE = "/opt/conda/lib/python3.11/site-packages"
_TORCH = f"{_SITE}/torch/lib/libtorch_cpu.so"
_TORCH_PYTHON = f"{_SITE}/torch/lib/libtorch_python.so"
_LIBC = "/usr/lib/x86_64-linux-gnu/libc.so.6"
_INTERPRETER = "/opt/conda/bin/python3.11"

_BOTTOM = [("__clone3", _LIBC), ("start_thread", _LIBC)]
_MAIN = [
    ("_start", _INTERPRETER),
    ("__libc_start_main_impl", _LIBC),
    ("Py_BytesMain", _INTERPRETER),
    ("Py_RunMain", _INTERPRETER),
    ("_PyRun_SimpleFileObject", _INTERPRETER),
    ("PyEval_EvalCode", _INTERPRETER),
    ("_PyEval_EvalFrameDefault", _INTERPRETER),
    ("cfunction_call", _INTERPRETER),
    ("pybind11::cpp_function::dispatcher(_object*, _object*, _object*)", _TORCH_PYTHON),
    ("c10d::ops::(anonymous namespace)::allreduce_CPU(c10::ArrayRef<at::Tensor>)", _TORCH),
    ("c10::impl::wrap_kernel_functor_unboxed_<c10::impl::detail::WrapFunctionIntoRuntime", _TORCH),
    (
        "c10d::ProcessGroupGloo::allreduce(std::vector<at::Tensor>&, AllreduceOptions const&)",
        _TORCH,
    ),
    ("c10d::ProcessGroupGloo::AsyncWork::wait(std::chrono::duration<long, std::milli>)", _TORCH),
    (
        "std::condition_variable::wait(std::unique_lock<std::mutex>&)",
        "/opt/conda/lib/libstdc++.so.6",
    ),
    ("pthread_cond_wait@@GLIBC_2.3.2", _LIBC),
    ("__futex_abstimed_wait_common", _LIBC),
]
_KINDS = (
    ("pt_autograd_{}", Role.AUTOGRAD, "torch::autograd::Engine::thread_init", 10),
    ("gloo_worker_{}", Role.COMMUNICATION, "gloo::transport::tcp::Loop::run", 9),
    ("omp_worker_{}", Role.COMPUTE, "gomp_barrier_wait_end", 18),
    ("pt_watchdog_{}", Role.WATCHDOG, "c10d::HeartbeatMonitor::runLoop", 2),
)


def _native_frames(frames: list[tuple[str, str]]) -> tuple[Frame, ...]:
    return tuple(
        Frame(func, source, "", "5be1a0c4d29f", 0x41000 + 64 * i)
        for i, (func, source) in enumerate(reversed(frames))
    )


def _native_threads(variant: int, odd: bool) -> list[ThreadStack]:
    steps = [(f"at::native::step<float, {i}>(at::TensorIteratorBase&)", _TORCH) for i in range(4)]
    tail = [("PyThread_acquire_lock_timed", _INTERPRETER), ("sem_clockwait", _LIBC)]
    main = _MAIN[:8] + tail if odd else _MAIN + steps
    threads = [ThreadStack(0, "python", _native_frames(main), Role.MAIN, "S")]
    for name, role, loop, count in _KINDS:
        for i in range(count):
            inner = [(f"{loop}(std::shared_ptr<Queue> const&)::part{k}", _TORCH) for k in range(15)]
            # A quarter of the threads is caught at different places on different ranks.
            moving = variant if i % 4 == 0 else 0
            wait = [("epoll_wait" if (i + moving) % 3 else "poll", _LIBC)]
            line = [(f"{loop}::idle", f"csrc/{name[:-3]}.cpp:{100 + i % 4 + moving % 4}")]
            frames = _native_frames([*_BOTTOM, *inner, *line, *wait])
            threads.append(ThreadStack(0, name.format(i), frames, role, "S"))
    return threads


def _python_threads(variant: int, odd: bool) -> list[ThreadStack]:
    train = [("<module>", "train.py:221"), ("main", "train.py:190"), ("step", "train.py:88")]
    end = [("next_batch", "data.py:88"), ("get", "queue.py:171")]
    if not odd:
        end = [
            ("all_reduce", f"{_SITE}/torch/distributed/distributed_c10d.py:{2500 + variant % 3}")
        ]
    threads = [("MainThread", Role.MAIN, train + end)]
    for i in range(PYTHON_THREADS - 1):
        loop = [
            ("_bootstrap", "threading.py:1002"),
            ("run", "threading.py:982"),
            (f"work_{i}", "w.py:9"),
        ]
        threads.append((f"Thread-{i}", Role.OTHER, loop))
    return [
        ThreadStack(0, name, tuple(Frame(f, s, "m") for f, s in reversed(frames)), role)
        for name, role, frames in threads
    ]


def _bodies(variant: int, odd: bool) -> tuple[list[bytes], list[bytes]]:
    """What follows the ids in each thread's message, cut out of the real encoder's bytes."""
    native, python = _native_threads(variant, odd), _python_threads(variant, odd)
    assert len(native) == NATIVE_THREADS
    assert len(python) == PYTHON_THREADS
    data = encode(RankDump(0, 0, 0, "", tuple(native), tuple(python)))
    found: tuple[list[bytes], list[bytes]] = ([], [])
    for number, kind, a, b in wire.fields(data, 0, len(data)):
        if kind == wire.BYTES and number in (1, 2):
            found[number - 1].append(data[a:b])
    return found


def _file(rank: int, world_size: int, bodies: tuple[list[bytes], list[bytes]]) -> bytes:
    pid = 10_000 + rank * 64 % 4_000_000
    header = encode(
        RankDump(rank, world_size, pid, "S (sleeping)", host=f"node{rank // 8}", job_id="bench",
                 captured_unix_ns=1, engines=("hook", "py-spy"))
    )  # fmt: skip
    parts = [header]
    for i, body in enumerate(bodies[0]):
        parts.append(wire.bytes_field(1, wire.number_field(1, pid + i) + body))
    for i, body in enumerate(bodies[1]):
        ids = wire.number_field(4, pid + i) + wire.number_field(1, pid)
        ids += wire.number_field(2, 140_000_000_000_000 + pid + i)
        parts.append(wire.bytes_field(2, ids + body))
    return b"".join(parts)


def write_files(folder: Path, world_size: int) -> int:
    """Write a world's files into an empty folder; returns their size in bytes.

    Raises:
        RelkitError: the disk has no room for them.
    """
    variants = [_bodies(variant, odd=False) for variant in range(12)]
    odd = _bodies(0, odd=True)
    sample = _file(0, world_size, variants[0])
    decode(sample, name=file_name(0, world_size))
    needed, free = len(sample) * world_size, shutil.disk_usage(folder).free
    if needed * 1.2 > free:
        raise RelkitError(f"{folder} has {free >> 20} MiB free; the files need {needed >> 20}")
    total = 0
    for rank in range(world_size):
        data = _file(rank, world_size, odd if rank in ODD_RANKS else variants[rank % 12])
        (folder / file_name(rank, world_size)).write_bytes(data)
        total += len(data)
    # Written back now, so that the disk is idle while the merge is timed.
    os.sync()
    return total
