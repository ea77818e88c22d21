"""Real ranks for tests: processes that share a store, and one world after another over it.

One process loads torch and the test's module, and the ranks are forked off it: eight of them cost
one start. None outlives the call.
"""

from __future__ import annotations

import faulthandler
import importlib
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, TCPStore
from torch.multiprocessing.spawn import start_processes

from tests.eager import eager

# Longer than any deadline: a rank that is not in the first worlds waits for those that are.
WORLD_TIMEOUT = timedelta(minutes=10)
# The part of the deadline after which every rank says where it stands, and goes on.
_STACKS_AFTER = 0.9
# How long the others may take to fail as well, before they are ended.
_GRACE_S = 5.0


@dataclass(frozen=True)
class Place:
    """Where a process stands.

    Args:
        rank: among the processes of the call, from 0.
        port: of the store that they share, on 127.0.0.1.
        folder: where what a process writes is found by the test.
    """

    rank: int
    port: int
    folder: Path

    @contextmanager
    def world(self, name: str, size: int) -> Iterator[bool]:
        """A gloo world of the first `size` processes; False in one that takes no part.

        A name is for one world only; processes enter worlds in the same order.
        """
        if self.rank >= size:
            yield False
            return
        client = TCPStore("127.0.0.1", self.port, is_master=False, timeout=WORLD_TIMEOUT)
        store = PrefixStore(name, client)
        dist.init_process_group(
            "gloo",
            store=store,
            rank=self.rank,
            world_size=size,
            timeout=WORLD_TIMEOUT,
        )
        try:
            # Who leaves while another still connects closes the connections under its hands. By the
            # store, as an operation of gloo would be one more in what tests count.
            store.set(f"connected {self.rank}", "")
            store.wait([f"connected {rank}" for rank in range(size)])
            yield True
        finally:
            dist.destroy_process_group()


Job = Callable[[Place], None]


def long_ones_run(request: pytest.FixtureRequest) -> bool:
    """Whether long tests of this module are among those that run: its job then has more to do."""
    own = [item for item in request.session.items if item.path == request.path]
    return any(item.get_closest_marker("long") is not None for item in own)


def run_ranks(
    job: Job, processes: int, folder: Path, *, deadline_s: float, compiler: bool = False
) -> None:
    """Run `job(place)` in that many processes; the first error of any fails the test.

    Args:
        job: a function of a test module.
        folder: see `Place`.
        deadline_s: after it, all are killed and the test fails.
        compiler: whether torch's is wanted (megatron-core's import asks for it), which takes time.
    """
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    arguments = [job.__module__, job.__name__, str(processes), str(store.port), str(folder)]
    arguments.append(str(time.monotonic() + deadline_s * _STACKS_AFTER))
    around = {**os.environ, "OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"}
    started = subprocess.Popen(
        [sys.executable, "-m", "tests.trainer.processes", *arguments],
        env=around if compiler else eager(around),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    ended = f"the ranks had not ended after {deadline_s} s"
    try:
        output, _ = started.communicate(timeout=deadline_s)
        ended = f"the ranks ended with {started.returncode}"
    except subprocess.TimeoutExpired:
        os.killpg(started.pid, signal.SIGKILL)
        output, _ = started.communicate()
    finally:
        if started.poll() is None:
            os.killpg(started.pid, signal.SIGKILL)
            started.wait()
    assert started.returncode == 0, f"{ended}\n{output}"


def _rank(rank: int, job: Job, port: int, folder: Path, stacks_at_s: float) -> None:
    torch.set_num_threads(1)
    faulthandler.dump_traceback_later(max(1.0, stacks_at_s - time.monotonic()))
    try:
        job(Place(rank, port, folder))
    except BaseException:
        # Of several that fail, torch reports the one that it notices first, which may be a victim.
        print(f"rank {rank}:\n{traceback.format_exc()}", file=sys.stderr, flush=True)
        raise


def _main(module: str, name: str, processes: str, port: str, folder: str, stacks_at_s: str) -> None:
    job = getattr(importlib.import_module(module), name)
    context = start_processes(  # type: ignore[no-untyped-call]
        _rank, (job, int(port), Path(folder), float(stacks_at_s)), nprocs=int(processes),
        join=False, start_method="fork",
    )  # fmt: skip
    while not context.join(grace_period=_GRACE_S):
        pass


if __name__ == "__main__":
    _main(*sys.argv[1:])
