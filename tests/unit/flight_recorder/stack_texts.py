"""Stacks of a process as other tools print them: py-spy's text and JSON, faulthandler's text."""

from __future__ import annotations

import json
from collections.abc import Sequence

# Function, path below site-packages or of the job, line; innermost first.
Frames = Sequence[tuple[str, str, int]]

ENDS: Frames = (("main", "train.py", 300), ("<module>", "train.py", 320))
LOADS: Frames = (
    ("wait", "threading.py", 306),
    ("get", "queue.py", 179),
    ("_try_get_data", "torch/utils/data/dataloader.py", 1011),
    ("next_batch", "train.py", 90),
    *ENDS,
)
WAITS: dict[str, Frames] = {
    "all_reduce": (("all_reduce", "torch/distributed/distributed_c10d.py", 2219),
                   ("wrapper", "torch/distributed/c10d_logger.py", 79),
                   ("sync_metrics", "train.py", 210), *ENDS),
    "broadcast": (("broadcast", "torch/distributed/distributed_c10d.py", 1191),
                  ("_sizes", "megatron/mpu/data.py", 50), *ENDS),
    "recv": (("recv", "torch/distributed/distributed_c10d.py", 1002),
             ("recv", "deepspeed/runtime/pipe/p2p.py", 83),
             ("_exec_recv", "deepspeed/runtime/pipe/engine.py", 1073), *ENDS),
    "deepspeed": (("wait_recv", "deepspeed/runtime/pipe/p2p.py", 120), ("step", "train.py", 99),
                  *ENDS),
    "megatron": (("_communicate", "megatron/core/pipeline_parallel/p2p_communication.py", 300),
                 ("forward_step", "train.py", 77), *ENDS),
    "ddp": (("_pre_forward", "torch/nn/parallel/distributed.py", 1775), ("step", "train.py", 88),
            *ENDS),
    "backward": (("_engine_run_backward", "torch/autograd/graph.py", 979),
                 ("backward", "torch/autograd/__init__.py", 395),
                 ("backward", "torch/_tensor.py", 623),
                 ("step", "train.py", 91), *ENDS),
    "horovod": (("synchronize", "horovod/torch/mpi_ops.py", 1270), ("step", "train.py", 99),
                *ENDS),
}  # fmt: skip


def spy_text(
    frames: Frames, pid: int, *, active: bool = False, native: Sequence[str] = (), note: str = ""
) -> str:
    """`py-spy dump` of a process with one thread; native frames stand innermost."""
    lines = [*(f"    {each}" for each in native)]
    lines += [f"    {func} ({path}:{line})" for func, path, line in frames]
    state = "active" if active else "idle"
    return (
        f"Process {pid}: python -u train.py{note}\nPython v3.10.12 (/opt/conda/bin/python3.10)\n\n"
        f'Thread {pid} ({state}): "MainThread"\n' + "\n".join(lines) + "\n"
    )


def _whole(path: str) -> str:
    if "/" not in path and path != "train.py":
        return f"/usr/lib/python3.10/{path}"
    return f"/site-packages/{path}" if path.startswith(("torch/", "deepspeed/")) else f"/w/{path}"


def spy_json(frames: Frames, pid: int, *, active: bool = False) -> str:
    """`py-spy dump --json` of the same."""
    own = [
        {"name": func, "filename": _whole(path), "module": None, "short_filename": path,
         "line": line, "locals": None, "is_entry": True}
        for func, path, line in frames
    ]  # fmt: skip
    thread = {"pid": pid, "thread_id": 7, "thread_name": "MainThread", "os_thread_id": pid,
              "active": active, "owns_gil": False, "frames": own}  # fmt: skip
    return json.dumps([thread], indent=2)


def fault_text(frames: Frames, pid: int, *, active: bool = False, mark: str = "") -> str:
    """faulthandler.dump_traceback_later of the same, and of a thread that was started later."""
    del active  # faulthandler does not know it
    head = "Current thread" if pid % 2 else "Thread"
    lines = ["Timeout (0:10:00)!", "Thread 0x00007f04d36bb740 (most recent call first):",
             '  File "/usr/lib/python3.10/threading.py", line 324 in wait', "",
             f"{head} 0x00007f04d36b{pid:04x} (most recent call first):"]  # fmt: skip
    lines += [f'  File "{_whole(path)}", line {line} in {func}' for func, path, line in frames]
    return "".join(f"{mark}{line}\n" for line in lines)
