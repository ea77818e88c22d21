"""A small DistributedDataParallel job under try-to-persist that suffers what it is told to.

    python ddp_job.py FOLDER STEPS "run=0:rank=1:step=10:deed=kill;..."

A deed is done once: in that attempt, on that rank, in the making of that step.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import random
import signal
import sys
import time

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from relkit.ttp.handlers import SaveRequest
from relkit.ttp.replicated import ReplicatedLoop
from tests.job_end import end_rank

# Before the forward pass; the others happen elsewhere.
IN_FORWARD = (
    "kill",
    "stop",
    "raise",
    "exit",
    "spin",
    "hold",
    "sleep",
    "ask",
    "swallow",
    "send",
    "receive",
)
_PAYLOAD = 64 << 20


class Deeds:
    """What this rank does in this attempt."""

    def __init__(self, text: str) -> None:
        self._left: dict[int, str] = {}
        for spec in filter(None, text.split(";")):
            fields = dict(part.split("=") for part in spec.split(":"))
            mine = fields.get("rank", "0") == os.environ["RANK"]
            if mine and fields.get("run", "0") == os.environ["TORCHELASTIC_RESTART_COUNT"]:
                self._left[int(fields["step"])] = fields["deed"]

    def at(self, step: int, *names: str) -> str:
        """The deed that is due, or ""."""
        deed = self._left.get(step, "")
        return deed if deed in names else ""

    def during_a_dump(self) -> bool:
        """Die while saving."""
        return "die-in-save" in self._left.values()


def forward(deed: str) -> None:
    """Do what is done before the forward pass."""
    if deed in ("kill", "stop"):
        os.kill(os.getpid(), signal.SIGKILL if deed == "kill" else signal.SIGSTOP)
    elif deed == "raise":
        raise ValueError("a bad sample")
    elif deed == "exit":
        sys.exit(3)
    elif deed == "spin":
        while True:
            pass
    elif deed == "hold":
        # Seconds in C with the interpreter lock held: no heartbeat, and nothing wrong.
        sum(itertools.repeat(1, 800_000_000))
    elif deed == "sleep":
        # The same, and not even computing.
        ctypes.PyDLL(None).sleep(5)
    elif deed == "receive":
        # Said only once the receive is posted, so that the payload follows at once.
        work = dist.irecv(torch.empty(_PAYLOAD), 0)
        dist.send(torch.ones(1), 0)
        assert work is not None
        work.wait()
    elif deed == "send":
        # More than fits between the two: a part arrives before the end of the connection.
        dist.recv(torch.empty(1), 1)
        dist.isend(torch.ones(_PAYLOAD), 1)
        os.kill(os.getpid(), signal.SIGKILL)
    elif deed == "ask":
        os.kill(os.getppid(), signal.SIGTERM)


def learn(folder: str, steps: int, deeds: Deeds) -> None:
    rank = dist.get_rank()
    torch.manual_seed(7)
    np.random.seed(7)
    random.seed(7)
    network = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, 1))
    model = DistributedDataParallel(network)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    persist = ReplicatedLoop(model, optimizer, folder)
    if deeds.during_a_dump():
        write = persist._save

        def save(request: SaveRequest) -> object:
            os.kill(os.getpid(), signal.SIGKILL)
            return write(request)

        assert persist._session is not None
        object.__setattr__(persist._session._saver._handlers, "save", save)

    def loss_of(step: int) -> torch.Tensor:
        draw = torch.Generator().manual_seed(1000 * step + rank)
        rows = torch.randn(8, 16, generator=draw)
        loss: torch.Tensor = (model(rows) - rows.sum(1, keepdim=True)).square().mean()
        return loss

    persist.warm_up(lambda: loss_of(0))

    # A job that is ended from outside runs for as long as that takes, and need not hurry.
    pause_s = 0.003 if steps < 1000 else 0.02

    def train() -> None:
        for step in (done + 1 for done in persist.steps(until=steps)):
            forward(deeds.at(step, *IN_FORWARD))
            optimizer.zero_grad()
            loss = loss_of(step)
            loss.backward()  # type: ignore[no-untyped-call]
            if deeds.at(step, "nan"):
                for parameter in network.parameters():
                    parameter.data.fill_(float("nan"))
            if deeds.at(step, "kill-in-barrier"):
                os.kill(os.getpid(), signal.SIGKILL)
            persist.begin_update()
            if deeds.at(step, "raise-in-update"):
                raise ValueError("half a step")
            if deeds.at(step, "kill-in-update"):
                os.kill(os.getpid(), signal.SIGKILL)
            optimizer.step()
            persist.end_update()
            # In one piece: all ranks write to one file.
            os.write(1, f"rank {rank} step {step} loss {float(loss).hex()}\n".encode())
            # A step takes a while elsewhere; here it leaves the machine to others.
            time.sleep(pause_s)

    persist.run(train)
    persist.save()
    # One write: print() makes two, and ranks write at once.
    sys.stdout.write(f"rank {rank} is done\n")


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    learn(sys.argv[1], int(sys.argv[2]), Deeds(sys.argv[3]))
    # The model is gone by now: torch would else end the group with it, waiting for a thread of
    # gloo's and holding the GIL, which that thread may be waiting for (pytorch/pytorch#56297).
    end_rank()


if __name__ == "__main__":
    main()
