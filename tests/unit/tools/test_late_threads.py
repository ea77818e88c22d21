"""The tool that makes C++ threads come late does that, and to no other thread."""

from __future__ import annotations

import ast
import os
import subprocess
import sys

from tests.eager import eager
from tools.late_threads.__main__ import build

SCRIPT = """
import os, threading
from pathlib import Path
import torch.distributed as dist
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
thread = threading.Thread(target=threading.Event().wait, daemon=True)
thread.start()
seen = {}
for task in Path("/proc/self/task").iterdir():
    comm = (task / "comm").read_text().strip()
    name = "gloo" if "gloo" in comm else "python" if int(task.name) == thread.native_id else ""
    name = "main" if int(task.name) == os.getpid() else name
    seen.setdefault(name, set()).add(os.sched_getscheduler(int(task.name)) == os.SCHED_IDLE)
print(seen, flush=True)
os._exit(0)
"""


def test_threads_of_gloo_come_late_and_those_of_python_do_not() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=eager({**os.environ, "LD_PRELOAD": os.fspath(build())}),
        capture_output=True, text=True, timeout=100, check=True,
    )  # fmt: skip
    seen = ast.literal_eval(done.stdout)
    assert (seen["gloo"], seen["main"], seen["python"]) == ({True}, {False}, {False})
