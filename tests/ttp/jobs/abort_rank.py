"""One rank of a gloo group for its test: blocks in a collective, is freed, and says how.

python abort_rank.py STORE_PORT RANK SIZE OPERATION
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from typing import Any

from relkit.ttp.collective_aborter import CollectiveAborter, open_sockets, own_recorder

own_server = socket.create_server(("127.0.0.1", 0))
own_client = socket.create_connection(own_server.getsockname())
own_peer, _ = own_server.accept()
KEPT = open_sockets()

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch._C._distributed_c10d import PrefixStore, TCPStore  # noqa: E402


def main() -> None:
    port, rank, size, operation = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    store = TCPStore("127.0.0.1", port, is_master=False)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
    dist.all_reduce(torch.ones(4))
    print(f"pid {os.getpid()} hook {own_recorder() is not None}", flush=True)
    if rank == size - 1:
        # Until the test stops or kills it.
        time.sleep(1000)
    freed = threading.Event()

    def free() -> None:
        sys.stdin.readline()
        aborter = CollectiveAborter([port], own_recorder(), KEPT)
        while not freed.is_set():
            aborter.abort([])
            time.sleep(0.01)

    freeing = threading.Thread(target=free, daemon=True)
    freeing.start()
    began_s = time.monotonic()
    try:
        if operation == "all_reduce":
            dist.all_reduce(torch.ones(1 << 16))
        elif operation == "barrier":
            dist.barrier()
        else:
            dist.recv(torch.ones(1), size - 1)
    except RuntimeError:
        print(f"freed after {time.monotonic() - began_s:.3f}", flush=True)
    freed.set()
    freeing.join()
    # What is not gloo's still works.
    store.set(f"alive-{rank}", "yes")
    own_client.sendall(b"x")
    assert own_peer.recv(1) == b"x"
    # And so does a new group of those that are left, once nobody frees any more: as in a save,
    # which begins when all have told their state.
    store.set(f"parked-{rank}", "yes")
    store.wait([f"parked-{other}" for other in range(size - 1)])
    again: Any = dist.ProcessGroupGloo(
        PrefixStore("again", store), rank, size - 1, torch.distributed.default_pg_timeout
    )
    total = torch.ones(1)
    again.allreduce([total]).wait()
    print(f"again {int(total)}", flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
