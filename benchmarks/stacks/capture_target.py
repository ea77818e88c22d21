"""One rank of a gloo job that blocks in all_reduce for ever, with a heartbeat inside."""

from __future__ import annotations

import ctypes
import datetime
import sys
import threading

import torch
import torch.distributed as dist


def main(heartbeat_library: str, heartbeat_file: str, store: str, rank: int, ranks: int) -> None:
    """Join the job, do one step of real work, say "up", and hang as a training job hangs."""
    dist.init_process_group(
        "gloo",
        init_method=f"file://{store}",
        rank=rank,
        world_size=ranks,
        timeout=datetime.timedelta(hours=1),
    )
    weights = torch.randn(256, 256, requires_grad=True)
    (weights @ weights).sum().backward()  # type: ignore[no-untyped-call]
    dist.all_reduce(torch.ones(8))
    if heartbeat_file:
        start = ctypes.CDLL(heartbeat_library).relkit_heartbeat_start
        if not start(ctypes.c_char_p(heartbeat_file.encode())):
            raise SystemExit("no heartbeat")
    print("up", flush=True)
    if rank == ranks - 1:
        threading.Event().wait()
    dist.all_reduce(torch.ones(4))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
