"""A real gloo job under the hook that hangs: the last rank never joins the all_reduce."""

from __future__ import annotations

import contextlib
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from relkit.hook.environment import prepare_job_dir, remove_job_dir, worker_environment
from relkit.hook.reader import read_state
from relkit.stacks.engines.base import Target
from tests.eager import eager
from tests.native.capture.targets import settled, until

_RANK = """
import datetime, sys, threading
import torch, torch.distributed as dist
rank, ranks = int(sys.argv[2]), int(sys.argv[3])
dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=rank, world_size=ranks,
                        timeout=datetime.timedelta(minutes=10))
dist.all_reduce(torch.ones(8))
print("up", flush=True)
def next_batch():
    threading.Event().wait()
if rank == ranks - 1:
    next_batch()
dist.all_reduce(torch.ones(4))
"""


@dataclass(frozen=True, slots=True)
class HungJob:
    """The job's id and its ranks, all where they will stay."""

    job_id: str
    targets: tuple[Target, ...]


@contextlib.contextmanager
def hung_job(folder: Path, ranks: int = 2) -> Iterator[HungJob]:
    """Start it, wait until all but the last rank are in the second all_reduce; reap it."""
    job_id = f"test-{secrets.token_hex(4)}"
    job_folder = prepare_job_dir(job_id, ranks)
    processes: list[subprocess.Popen[str]] = []
    try:
        for rank in range(ranks):
            identity = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks)}
            environment = eager({**os.environ, **identity, "OMP_NUM_THREADS": "1"})
            environment |= worker_environment(job_folder, environment)
            processes.append(
                subprocess.Popen(
                    [sys.executable, "-c", _RANK, str(folder / job_id), str(rank), str(ranks)],
                    env=environment,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
        targets = []
        for rank, process in enumerate(processes):
            assert process.stdout is not None
            assert process.stdout.readline() == "up\n"
            path = job_folder / f"{process.pid}.rkhook"
            targets.append(Target(process.pid, rank, ranks, "here", job_id, path))
        for target in targets[:-1]:
            path = target.hook_file or Path()
            until(lambda path=path: read_state(path).in_flight, "all_reduce in flight")  # type: ignore[misc]
        for target in targets:
            settled(target.pid, main_only=True)
        yield HungJob(job_id, tuple(targets))
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.communicate()
        remove_job_dir(job_folder)
