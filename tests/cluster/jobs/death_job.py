"""A job in which one rank dies, in the way that the command line says.

python death_job.py HOW RANK [CGROUP | FILE]
"""

from __future__ import annotations

import atexit
import ctypes
import os
import select
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import ModuleType

HOW, VICTIM = sys.argv[1], int(sys.argv[2])
TASKS, RUNTIME_BYTES = Path("/proc/self/task"), 1 << 20
DIES = int(os.environ["RANK"]) == VICTIM

if DIES and HOW == "import":
    os.kill(os.getpid(), signal.SIGKILL)

if DIES and HOW == "memory":
    # So early that the launcher sees it there, while torch is imported.
    (Path(sys.argv[3]) / "cgroup.procs").write_text(str(os.getpid()))


def let_gloo_come_late() -> None:
    """Keep the interpreter until gloo's thread waits for it, and go on to take it down."""
    # What was registered before this, by relkit, comes first: it gives the interpreter away.
    atexit.unregister(let_gloo_come_late)
    atexit._run_exitfuncs()
    # Nobody asks for the interpreter while it is kept, and nothing below gives it away.
    sys.setswitchinterval(1000)
    Path(sys.argv[3]).touch()
    libc, text = ctypes.PyDLL(None), ctypes.create_string_buffer(256)
    runtime = ctypes.addressof(ctypes.c_char.in_dll(ctypes.pythonapi, "_PyRuntime"))
    threads = [os.fsencode(thread / "syscall") for thread in TASKS.iterdir()]
    while True:
        for thread in threads:
            file = libc.open(thread, os.O_RDONLY)
            words = text.raw[: max(0, libc.read(file, text, len(text)))].split()
            libc.close(file)
            # The lock of the interpreter is in there; other waits are elsewhere.
            if len(words) > 1 and 0 <= int(words[1], 16) - runtime < RUNTIME_BYTES:
                return


class EndsLate:
    """Python takes this down while it shuts down, which then lasts."""

    def __init__(self) -> None:
        self.sleep = time.sleep

    def __del__(self) -> None:
        self.sleep(30)


if DIES and HOW == "abort":
    # The thread that waits gets the interpreter in that time, and must end. In a module of its own,
    # as this one is taken down only if nothing else holds what is in it.
    sys.modules["ends_late"] = ModuleType("ends_late")
    vars(sys.modules["ends_late"])["kept"] = EndsLate()
    # Before torch is imported: what is registered first is done last.
    atexit.register(let_gloo_come_late)

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

KEPT = torch.ones(4)


def die() -> None:
    if HOW == "abort":
        dist.all_reduce(KEPT, async_op=True)
    if HOW in ("raise", "abort"):
        raise ValueError("bad batch 17")
    if HOW == "segfault":
        ctypes.string_at(0)
    if HOW == "exit":
        os._exit(3)
    if HOW == "memory":
        kept = []
        while True:
            kept.append(bytearray(os.urandom(1 << 22)))


def wait_for_the_victim() -> None:
    """Python takes its time to end, and its peers lose their connections before."""
    pid = int(dist.distributed_c10d._get_default_store().get("victim"))
    with suppress(ProcessLookupError):
        select.select([os.pidfd_open(pid)], [], [])


def main() -> None:
    dist.init_process_group("gloo")
    tensor = torch.ones(4)
    dist.all_reduce(tensor)
    if int(os.environ["RANK"]) == 0:
        print("all there", flush=True)
    if DIES:
        dist.distributed_c10d._get_default_store().set("victim", str(os.getpid()))
        print(f"rank {VICTIM} is about to go", file=sys.stderr, flush=True)
        die()
    while HOW == "abort" and not Path(sys.argv[3]).exists():
        time.sleep(0.01)
    try:
        while True:
            dist.all_reduce(tensor)
    except RuntimeError:
        if HOW == "raise":
            wait_for_the_victim()
        raise


main()
