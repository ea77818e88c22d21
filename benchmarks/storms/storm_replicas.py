"""What the hosts of a storm hold of each other's ranks, for benchmarks/storms/storm.py."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from relkit.flash_checkpoint.replicas.copy_folder import FOLDER, copies_in
from relkit.launch.replicas.plan import Held, newest_round


def newest_replica(memories: Sequence[Path], job_id: str, world_size: int) -> int:
    """The newest step of which every rank has a whole copy on one of some hosts; -1 for none.

    Args:
        memories: what these hosts have as /dev/shm; job_id: of the job; world_size: its ranks.
    """
    resume = newest_round(_held(memories, job_id, world_size), world_size, {})
    return -1 if resume is None else resume.step


def _held(memories: Sequence[Path], job_id: str, world_size: int) -> Iterator[Held]:
    for node, memory in enumerate(memories):
        for folder in memory.glob(f"relkit-*-slots/{job_id}-*/{FOLDER}"):
            for copy in copies_in(folder, world_size)[0]:
                yield Held(node, copy.rank, copy.round_id, copy.header.step)
