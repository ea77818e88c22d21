"""Four ranks that step together; a rank stalls while there is a file that says so.

usage: stall_job.py FOLDER

FOLDER/sleep-RANK or FOLDER/spin-RANK makes that rank stall, in a sleep or a busy loop, until the
file is gone; FOLDER/stop-RANK has it stop itself by a signal. No stall is in an operation. So many
files FOLDER/payload-N: the payload of the operation in which the others then wait. FOLDER/end ends
the job. The ranks leave their process ids in FOLDER/pid-RANK, and the one that sleeps
FOLDER/asleep-RANK.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

STEP_S, WARM_UP = 0.1, 150


def main() -> None:
    """Run the job."""
    folder = Path(sys.argv[1])
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    (folder / f"pid-{rank}").write_text(str(os.getpid()))
    sleeps, spins, stops = (folder / f"{how}-{rank}" for how in ("sleep", "spin", "stop"))
    asleep = folder / f"asleep-{rank}"
    payload = 0
    for step in range(10**9):
        time.sleep(STEP_S)
        while sleeps.exists():
            asleep.touch()
            time.sleep(STEP_S)
        while spins.exists():
            pass
        if stops.exists():
            os.kill(os.getpid(), signal.SIGSTOP)
        # Each stall is in operations of its own kind: what was learned of another is no excuse.
        dist.all_reduce(torch.ones(64 << 4 * payload))
        asked = torch.tensor([len(list(folder.glob("payload-*"))), (folder / "end").exists()])
        dist.all_reduce(asked, op=dist.ReduceOp.MIN)
        if asked[1]:
            break
        if step >= WARM_UP and payload != asked[0]:
            payload = int(asked[0])
            if not rank:
                print(f"payload {payload}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
