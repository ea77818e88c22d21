"""What goes wrong in the jobs of hang_scenarios.py, where, and the faults on the host itself.

Every job takes the same options: which fault, on which ranks, in which step and micro-batch.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import queue
import signal
import socket
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

# A child or worker that outlives its job ends by itself.
_ORPHAN_S = 120


@dataclass(frozen=True, slots=True)
class Fault:
    """Where a job goes wrong.

    Args:
        name: of the fault; ranks: that it befalls.
        step: of training; micro_batch: in it, where the job has any.
        pause_s: of the fault "pause", which is no fault, s.
    """

    name: str
    ranks: frozenset[int]
    step: int
    micro_batch: int
    pause_s: float

    def here(self, name: str, rank: int, step: int, micro_batch: int | None = None) -> bool:
        """This fault, on this rank, now."""
        place = micro_batch is None or micro_batch == self.micro_batch
        return place and name == self.name and rank in self.ranks and step == self.step

    def on_host(self, rank: int, step: int, micro_batch: int | None = None) -> None:
        """In the middle of the rank's own work: the fault, if it is one of the host."""
        if self.name == "pause" and rank in self.ranks and step in (self.step, self.step + 2):
            if micro_batch is None or micro_batch == self.micro_batch:
                time.sleep(self.pause_s)
        elif self.name in _ON_HOST and self.here(self.name, rank, step, micro_batch):
            _ON_HOST[self.name]()


def _freeze() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def _spin() -> None:
    tokens = 0
    while tokens >= 0:
        tokens = (tokens * 31 + 7) % 50257


def _sleep() -> None:
    time.sleep(3600)


def _lock() -> None:
    lock = threading.Lock()
    lock.acquire()
    with lock:
        pass


def _pipe() -> None:
    reader, _writer = os.pipe()
    os.read(reader, 1)


def _fifo() -> None:
    path = Path(tempfile.mkdtemp(), "metrics.log")
    os.mkfifo(path)
    path.write_text("loss 0.1\n")


def _checkpoint() -> None:
    import torch

    _reader, writer = os.pipe()
    with os.fdopen(writer, "wb") as target:
        torch.save(torch.ones(1 << 20), target)


def _file_lock() -> None:
    path = Path(tempfile.mkdtemp(), "cache.lock")
    with path.open("w") as first, path.open("w") as second:
        fcntl.flock(first, fcntl.LOCK_EX)
        fcntl.flock(second, fcntl.LOCK_EX)


def _queue() -> None:
    queue.Queue[bytes]().get()


def _socket() -> None:
    mine, _theirs = socket.socketpair()
    mine.recv(1)


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _exit() -> None:
    sys.exit(1)


def _raise() -> None:
    raise ValueError("loss is not finite")


_ON_HOST = {
    "freeze": _freeze,
    "spin": _spin,
    "sleep": _sleep,
    "lock": _lock,
    "pipe": _pipe,
    "fifo": _fifo,
    "checkpoint": _checkpoint,
    "file-lock": _file_lock,
    "queue": _queue,
    "socket": _socket,
    "kill": _kill,
    "exit": _exit,
    "raise": _raise,
}


def stuck_worker() -> None:
    """What a data loader's worker does whose file server has gone."""
    signal.alarm(_ORPHAN_S)
    reader, _writer = os.pipe()
    os.read(reader, 1)


def options(*more: str) -> tuple[Fault, argparse.Namespace]:
    """The fault, and the values of this job's own options."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="")
    parser.add_argument("--ranks", default="")
    parser.add_argument("--step", type=int, default=4)
    parser.add_argument("--micro-batch", type=int, default=0)
    parser.add_argument("--pause-s", type=float, default=0.0)
    parser.add_argument("--steps", type=int, default=100_000)
    for name in more:
        parser.add_argument(f"--{name}", default="")
    given = parser.parse_args()
    ranks = frozenset(int(rank) for rank in given.ranks.split(",") if rank)
    return Fault(given.fault, ranks, given.step, given.micro_batch, given.pause_s), given
