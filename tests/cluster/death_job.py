"""A job in which one rank dies, in the way that the command line says.

python death_job.py HOW RANK [CGROUP]
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from pathlib import Path

HOW, VICTIM = sys.argv[1], int(sys.argv[2])
DIES = int(os.environ["RANK"]) == VICTIM

if DIES and HOW == "import":
    os.kill(os.getpid(), signal.SIGKILL)

if DIES and HOW == "memory":
    # So early that the launcher sees it there, while torch is imported.
    (Path(sys.argv[3]) / "cgroup.procs").write_text(str(os.getpid()))

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402


def die() -> None:
    if HOW == "raise":
        raise ValueError("bad batch 17")
    if HOW == "segfault":
        ctypes.string_at(0)
    if HOW == "exit":
        os._exit(3)
    if HOW == "memory":
        kept = []
        while True:
            kept.append(bytearray(os.urandom(1 << 22)))


def main() -> None:
    dist.init_process_group("gloo")
    tensor = torch.ones(4)
    dist.all_reduce(tensor)
    if int(os.environ["RANK"]) == 0:
        print("all there", flush=True)
    if DIES:
        print(f"rank {VICTIM} is about to go", file=sys.stderr, flush=True)
        die()
    while True:
        dist.all_reduce(tensor)


main()
