"""A job whose rank 2 stops before a collective, or one that ends, with a child that was forked.

With "once" rank 2 stops in the first attempt only.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time

import torch
import torch.distributed as dist

STOPS_AT = 20


def wait_for_input(how: str) -> None:
    """Where rank 2 stops."""
    if how == "lock":
        # With the interpreter lock, as an extension may: no Python code runs in the process.
        ctypes.PyDLL(None).sleep(1000)
    time.sleep(1000)


def main() -> None:
    how = sys.argv[1]
    if how == "once":
        how = "sleep" if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" else "end"
    dist.init_process_group("gloo")
    tensor = torch.ones(64)
    for step in range(30 if how == "end" else 100_000):
        if how != "end" and dist.get_rank() == 2 and step == STOPS_AT:
            wait_for_input(how)
        dist.all_reduce(tensor)
        if how != "end":
            time.sleep(0.1)
    # A child has gloo's objects without their threads, and would hang in their end.
    dist.destroy_process_group()
    if os.fork() == 0:
        # Ends as a process does, with all that Python does then.
        sys.exit(0)
    assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
    print("all done", flush=True)


if __name__ == "__main__":
    main()
