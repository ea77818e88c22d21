"""Two ranks; in step 4 a thread of rank 1 waits in native code with the interpreter lock held.

usage: gil_job.py main|thread
"""

from __future__ import annotations

import ctypes
import sys
import threading

import torch
import torch.distributed as dist

STEPS, BAD_STEP, BAD_RANK = 100_000, 4, 1


def hold_the_lock() -> None:
    """Lock a mutex twice, by calls that do not release the interpreter lock."""
    libc, mutex = ctypes.PyDLL(None), ctypes.create_string_buffer(64)
    libc.pthread_mutex_lock(mutex)
    libc.pthread_mutex_lock(mutex)


def count(ends: threading.Event) -> None:
    """Another thread of Python's, that wants to run now and then."""
    while not ends.wait(0.01):
        pass


def main() -> None:
    """Run the job."""
    dist.init_process_group("gloo")
    threading.Thread(target=count, args=(threading.Event(),), name="counter", daemon=True).start()
    for step in range(STEPS):
        if (dist.get_rank(), step) == (BAD_RANK, BAD_STEP):
            if sys.argv[1] == "main":
                hold_the_lock()
            else:
                threading.Thread(target=hold_the_lock, name="holder", daemon=True).start()
        dist.all_reduce(torch.ones(8))


if __name__ == "__main__":
    main()
