"""Runs a real job under the hook and collects its steps meanwhile, as a launcher does."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from relkit.bootstrap import bootstrap_environment
from relkit.hook.environment import prepare_job_dir, remove_job_dir, worker_environment
from relkit.launch.job.settings import LocalRank
from relkit.straggler.collect.node_collector import NodeCollector
from relkit.straggler.step_record import StepRecord
from tests.eager import eager
from tests.ports import free_port

LIMIT_S = 90.0


@dataclass(frozen=True)
class Collected:
    """What came of a job."""

    records: tuple[StepRecord, ...]
    notes: tuple[str, ...]

    def of(self, rank: int) -> list[StepRecord]:
        """One rank's steps."""
        return [record for record in self.records if record.rank == rank]

    def usual(self, rank: int, part: str) -> float:
        """Median of a part over the steps of a rank, without the first ones."""
        values = np.array([getattr(record.parts, part) for record in self.of(rank)[5:]])
        # How long it ran is known from the first look at it on.
        assert np.isfinite(values).mean() > 0.5
        return float(np.nanmedian(values))


def run_job(command: Sequence[str], ranks: int, *, wrapped: bool = False) -> Collected:
    """Run `python COMMAND` once a rank, to its end.

    Args:
        wrapped: start each below a shell, so that its pid is not the rank's own.
    """
    folder = prepare_job_dir(f"test-{secrets.token_hex(4)}", ranks)
    base = eager(os.environ) | {"OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1"}
    base |= {"MASTER_PORT": str(free_port()), "WORLD_SIZE": str(ranks)}
    base |= worker_environment(folder, base)
    base |= bootstrap_environment(base)
    start = ["sh", "-c", '"$@"; exit $?', "sh"] if wrapped else []
    processes: list[subprocess.Popen[bytes]] = []
    records: list[StepRecord] = []
    collector = NodeCollector(folder, "here")
    try:
        for rank in range(ranks):
            identity = {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            argv = [*start, sys.executable, *command]
            processes.append(subprocess.Popen(argv, env=base | identity, stdout=subprocess.DEVNULL))
        local = [LocalRank(rank, process.pid) for rank, process in enumerate(processes)]
        until = time.monotonic() + LIMIT_S
        while any(process.poll() is None for process in processes):
            assert time.monotonic() < until, "the job takes too long"
            records += collector.collect(local)
            time.sleep(0.1)
        records += collector.collect(local)
        assert [process.returncode for process in processes] == [0] * ranks
        return Collected(tuple(records), collector.notes())
    finally:
        collector.close()
        for process in processes:
            if process.poll() is None:
                process.kill()
            process.wait(10)
        remove_job_dir(folder)
