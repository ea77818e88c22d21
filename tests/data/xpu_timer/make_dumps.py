"""Writes eight_ranks/*.stacktrace as the original tool would: its messages, its field order.

Run from the top of the checkout: python -m tests.data.xpu_timer.make_dumps
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.unit.stacks.xpu_messages import Stacktrace

WORLD = 8
FOLDER = Path(__file__).with_name("eight_ranks")
LIBC = "/lib/x86_64-linux-gnu/libc.so.6"
TORCH = "/opt/conda/lib/python3.10/site-packages/torch/lib/libtorch_cuda.so"
CUDA = "/usr/lib/x86_64-linux-gnu/libcuda.so.1"
MEGATRON = "/opt/megatron/megatron/core/pipeline_parallel"

START = [("__clone3", "../sysdeps/unix/sysv/linux/x86_64/clone3.S:81"), ("start_thread", LIBC)]
INTERPRETER = [
    ("main", "/opt/conda/bin/python3.10"),
    ("Py_BytesMain", "Modules/main.c:1090"),
    ("PyEval_EvalCode", "Python/ceval.c:1134"),
    ("_PyEval_EvalFrameDefault", "Python/ceval.c:4198"),
    ("_PyFunction_Vectorcall", "Objects/call.c:342"),
    ("_PyEval_EvalFrameDefault", "Python/ceval.c:4213"),
]
ALL_REDUCE = [
    ("torch::autograd::THPVariable_item(_object*, _object*)", TORCH),
    ("at::native::_local_scalar_dense_cuda(at::Tensor const&)::{lambda()#1}::operator()", TORCH),
    ("c10::impl::BoxedKernelWrapper<at::Tensor (c10::SymIntArrayRef), void>::call", TORCH),
    ("cudaStreamSynchronize", CUDA),
    ("??", "??"),
    ("??", "??"),
    ("__GI___sched_yield", "../sysdeps/unix/syscall-template.S:117"),
]
LOCKED = [
    ("lock_PyThread_acquire_lock", "Modules/_threadmodule.c:146"),
    ("PyThread_acquire_lock_timed", "Python/thread_pthread.h:483"),
    ("__futex_abstimed_wait_common64 (private=<optimized out>, cancel=true)", LIBC),
    ("do_futex_wait.constprop.0@@GLIBC_2.34", LIBC),
]
READING = [
    ("_io_FileIO_readinto", "Modules/_io/clinic/fileio.c.h:170"),
    ("_Py_read", "Python/fileutils.c:1678"),
    ("__GI___libc_read", "../sysdeps/unix/sysv/linux/read.c:26"),
]
WATCHDOG = [
    ("execute_native_thread_routine", "/opt/conda/lib/libstdc++.so.6"),
    ("c10d::ProcessGroupNCCL::ncclCommWatchdog()", TORCH),
    (
        "std::condition_variable::__wait_until_impl<std::chrono::duration<long, std::ratio<1>>>",
        TORCH,
    ),
    ("pthread_cond_clockwait@@GLIBC_2.34", LIBC),
]
PROXY = [("ncclProxyService(void*)", TORCH), ("__GI___poll", LIBC)]
AUTOGRAD = [
    ("torch::autograd::Engine::thread_init(int, std::shared_ptr<ReadyQueue> const&, bool)", TORCH),
    ("pthread_cond_wait@@GLIBC_2.3.2", LIBC),
]

TRAIN = [("<module>", "pretrain_gpt.py:221"), ("train_step", "/opt/megatron/training.py:391")]
STEP = [("forward_backward_pipelining_without_interleaving", f"{MEGATRON}/schedules.py:1458")]
PYTHON_ENDS = {
    2: [("next_batch", "/opt/megatron/data/loader.py:88"), ("wait", "threading.py:320")],
    5: [("_load", "/opt/megatron/data/indexed.py:512"), ("read", "<frozen codecs>:322")],
}
NATIVE_ENDS = {2: LOCKED, 5: READING}


def _frames(thread: Any, outermost_first: list[tuple[str, str]], base: int | None) -> None:  # noqa: ANN401
    for number, (func, source) in enumerate(reversed(outermost_first)):
        frame = thread.frames.add(func_name=func, file_name=source)
        if base is not None:
            frame.origin = f"#{number}  0x{base + 64 * number:016x} in {func} () from {source}"


def dump(rank: int) -> bytes:
    """The bytes of one rank's file."""
    pid = 41_000 + 97 * rank
    file = Stacktrace(
        pid=pid, rank=rank, process_state="S (sleeping)" if rank != 5 else "R (running)"
    )
    natives = [
        ("pt_main_thread", INTERPRETER + NATIVE_ENDS.get(rank, ALL_REDUCE)),
        ("pt_nccl_watchdg", START + WATCHDOG),
        ("nccl_proxy_svc", START + PROXY),
        ("pt_autograd_0", START + AUTOGRAD),
        ("pt_autograd_1", START + AUTOGRAD),
    ]
    for index, (name, frames) in enumerate(natives):
        thread = file.stacktrace.add(pid=pid + index, thread_name=name)
        _frames(thread, frames, 0x7F0000000000 + rank * 0x1000000)
    last = PYTHON_ENDS.get(rank, [*STEP, ("all_reduce", f"{MEGATRON}/p2p.py:{241 + rank // 4}")])
    main = file.py_stacktrace.add(pid=pid, thread_id=140_000_000 + rank, thread_name="MainThread")
    main.os_thread_id, main.active, main.owns_gil = pid, True, rank == 5
    _frames(main, TRAIN + last, None)
    other = file.py_stacktrace.add(pid=pid, thread_id=150_000_000 + rank, thread_name="Thread-1")
    other.os_thread_id = pid + 60
    _frames(other, [("_bootstrap", "threading.py:973"), ("_monitor", "tqdm/_monitor.py:60")], None)
    file.pstack_stdout = f"Thread 1 (LWP {pid}):\n"
    return bytes(file.SerializeToString())


def main() -> None:
    """Write all files."""
    for rank in range(WORLD):
        (FOLDER / f"{rank:05d}-{WORLD:05d}.stacktrace").write_bytes(dump(rank))


if __name__ == "__main__":
    main()
