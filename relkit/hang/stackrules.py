"""The tables behind stackclass: what paths, functions and kernel names show."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from relkit.hang.activity import ThreadState
from relkit.hang.frames import split_source
from relkit.stacks.model import Frame

_P2P_CALLS = r"(i?send|i?recv|batch_isend_irecv|(send|recv)_object_list)"
_SETUP_CALLS = (
    r"(init_process_group|new_group|_new_group_with_tag|_new_process_group_helper|"
    r"_store_based_barrier|split_group|.*rendezvous.*|_create_.*store)"
)

# (path, function, category), tried in order on every library frame between the leaf and the
# user's code. The first row that fits any of them wins: `queue` calls `threading`, the data
# loader calls `queue`, and the outermost of these is the most specific.
_PYTHON: tuple[tuple[str, str, ThreadState], ...] = (
    (r"torch/utils/data/", r".*", ThreadState.DATA),
    (r"torch/(_dynamo|_inductor|_functorch|fx)/|/triton/", r".*", ThreadState.COMPILE),
    (r"torch/(serialization\.py|distributed/checkpoint/)", r".*", ThreadState.CHECKPOINT),
    (
        r"torch/distributed/elastic/multiprocessing/errors/",
        r".*record_exception",
        ThreadState.EXCEPTION,
    ),
    (r"torch/distributed/", rf"(.*\.)?{_SETUP_CALLS}", ThreadState.SETUP),
    (r"torch/distributed/", rf"(.*\.)?{_P2P_CALLS}", ThreadState.P2P),
    (r"torch/(distributed/(?!elastic)|nn/parallel/distributed\.py)", r".*", ThreadState.COLLECTIVE),
    (r"/deepspeed/runtime/pipe/p2p\.py", r".*", ThreadState.P2P),
    (r"/deepspeed/(runtime/)?comm/", r".*", ThreadState.COLLECTIVE),
    (r"torch/(cuda|mps|xpu|npu|musa)/", r".*synchronize", ThreadState.STREAM),
    (r"/subprocess\.py$", r".*", ThreadState.CHILD),
    (r"/multiprocessing/(popen|process)", r".*(join|wait|poll)", ThreadState.CHILD),
    (r"/(queue|multiprocessing/queues)\.py$", r".*(get|put|join)", ThreadState.QUEUE),
    (r"/concurrent/futures/", r".*", ThreadState.CONDITION),
    (r"/(socket|ssl|http/client|socketserver)\.py$", r".*", ThreadState.SOCKET),
    (r"/(traceback|linecache)\.py$", r".*", ThreadState.EXCEPTION),
    (r"/threading\.py$", r"_shutdown|.*_python_exit", ThreadState.EXIT),
    (r"/threading\.py$", r".*(join|_wait_for_tstate_lock)", ThreadState.THREAD),
    (r"/threading\.py$", r".*(wait|wait_for)", ThreadState.CONDITION),
    (r"/threading\.py$", r".*(acquire|__enter__)", ThreadState.LOCK),
    (r"/(selectors|multiprocessing/connection)\.py$", r".*", ThreadState.DESCRIPTOR),
    (r"/(shutil|tarfile|zipfile|gzip|pickle)\.py$", r".*", ThreadState.FILE),
    # Below it there are no Python frames but those of hooks.
    (
        r"torch/autograd/(graph|__init__)\.py$",
        r"_engine_run_backward|backward",
        ThreadState.BACKWARD,
    ),
)
_PYTHON_COMPILED = tuple(
    (re.compile(path), re.compile(function), thread_state)
    for path, function, thread_state in _PYTHON
)

# Python shows the frames of its own import system as those of a frozen module.
_IMPORTS = re.compile(r"importlib[/.]_bootstrap\b")

# What frameworks call that wait for other ranks in native code, where the waiting itself has no
# frame: tried on the innermost frame.
_FRAMEWORKS: tuple[tuple[re.Pattern[str], re.Pattern[str], ThreadState], ...] = tuple(
    (re.compile(path), re.compile(function), thread_state)
    for path, function, thread_state in (
        (r"(^|/)megatron/.*p2p_communication\.py$", r".*", ThreadState.P2P),
        (r"(^|/)deepspeed/(runtime/)?(comm/|pipe/p2p\.py$)", r".*", ThreadState.COLLECTIVE),
        (
            r"(^|/)horovod/",
            r".*(synchronize|allreduce|allgather|reducescatter|broadcast|alltoall|barrier|join)_?",
            ThreadState.COLLECTIVE,
        ),
        (
            r"(^|/)(vllm|sglang)/.*(distributed/|parallel_state\.py$)",
            r".*(all_?reduce|all_?gather|reduce_?scatter|broadcast|send|recv|barrier|wait).*",
            ThreadState.COLLECTIVE,
        ),
    )
)

_FINALIZE = re.compile(r"Py_Finalize|finalize_modules|__run_exit_handlers")
# Native functions, tried innermost first.
_NATIVE: tuple[tuple[re.Pattern[str], ThreadState], ...] = tuple(
    (re.compile(pattern), thread_state)
    for pattern, thread_state in (
        (r"take_gil|PyEval_(Acquire|Restore)Thread", ThreadState.GIL),
        (r"gc_collect|deduce_unreachable|visit_decref", ThreadState.GC),
        (r"(Send|Recv)Work::|UnboundBuffer::wait", ThreadState.P2P),
        (r"c10d::|gloo::|ProcessGroup|n?ccl[A-Z]\w+|Hccl", ThreadState.COLLECTIVE),
        (r"(cuda|cu|hip|mc|acl\w*)(Stream|Device|Event|Ctx)Synchronize", ThreadState.STREAM),
        (r"PyThread_acquire_lock|acquire_timed|rlock_acquire", ThreadState.LOCK),
        (r"\bpysleep|time_sleep|clock_nanosleep", ThreadState.SLEEP),
        (r"[sdcz]gemm|mkl_|cblas_|dnnl|gemm_", ThreadState.COMPUTE),
        (r"\b(__)?(wait4|waitpid|waitid)\b", ThreadState.CHILD),
        (r"\b(__)?(fsync|fdatasync|flock|p?read64|p?write64|openat64)\b", ThreadState.FILE),
    )
)

# Where the main thread sleeps in the kernel; decides only where the stack's functions do not.
_KERNEL: tuple[tuple[re.Pattern[str], ThreadState], ...] = tuple(
    (re.compile(pattern), thread_state)
    for pattern, thread_state in (
        (r"nanosleep", ThreadState.SLEEP),
        (r"futex", ThreadState.LOCK),
        (r"pipe_(read|write|wait)|n_tty_read|eventfd|ep_poll|epoll_wait|poll_schedule|do_select",
         ThreadState.DESCRIPTOR),
        (r"sk_wait|tcp_|unix_stream|inet_|wait_woken|skb_wait", ThreadState.SOCKET),
        (r"^do_wait|kernel_waitid", ThreadState.CHILD),
        (r"io_schedule|folio_|nfs|rpc_|ext4|xfs|jbd2|fuse|ceph|lustre|locks_lock|flock|d_alloc",
         ThreadState.FILE),
        (r"^pipe_|do_sys_poll", ThreadState.DESCRIPTOR),
    )
)  # fmt: skip


def by_python(frames: Iterable[Frame]) -> ThreadState | None:
    """What library frames show, or None."""
    seen = [(split_source(frame.source)[0], frame.func) for frame in frames]
    for path, function, thread_state in _PYTHON_COMPILED:
        if any(path.search(p) and function.fullmatch(f) for p, f in seen):
            return thread_state
    return None


def in_import(library: Sequence[Frame]) -> Sequence[Frame] | None:
    """Where a module is being imported, what that has called; else None.

    Bodies of modules are left out: what they belong to does not say what they do.
    """
    depth = next((i for i, frame in enumerate(library) if _IMPORTS.search(frame.source)), None)
    return None if depth is None else [f for f in library[:depth] if f.func != "<module>"]


def by_framework(frame: Frame) -> ThreadState | None:
    """What the innermost frame shows where it is a framework's own wait for other ranks."""
    path = split_source(frame.source)[0]
    for at, function, thread_state in _FRAMEWORKS:
        if at.search(path) and function.fullmatch(frame.func.rpartition(".")[2]):
            return thread_state
    return None


def ends_interpreter(python: Iterable[Frame], native: Iterable[Frame]) -> bool:
    """Whether a main thread with these frames has left its script behind."""
    in_python = any(
        frame.func == "_shutdown" and split_source(frame.source)[0].endswith("/threading.py")
        for frame in python
    )
    return in_python or any(_FINALIZE.search(frame.func) for frame in native)


def by_native(frames: Sequence[Frame]) -> ThreadState | None:
    """What native functions show: the innermost that matches a row."""
    # On its way out an interpreter collects garbage, joins threads and more.
    if ends_interpreter((), frames):
        return ThreadState.EXIT
    for frame in frames:
        for pattern, thread_state in _NATIVE:
            if pattern.search(frame.func):
                return thread_state
    return None


def by_kernel(wchan: str) -> ThreadState | None:
    """What the kernel function that a thread sleeps in shows."""
    return next((thread_state for pattern, thread_state in _KERNEL if pattern.search(wchan)), None)
