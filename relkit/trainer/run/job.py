"""A rank's place in its job before it has a model: groups, log, events, and try-to-persist."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from relkit.errors import UsageProblem
from relkit.trainer.config.config import TrainerConfig
from relkit.trainer.core.hooks import StepHooks
from relkit.trainer.core.mesh import Mesh, build_mesh
from relkit.trainer.telemetry.events import EventStream
from relkit.trainer.telemetry.log import RankLog
from relkit.ttp.collective_aborter import open_sockets
from relkit.ttp.environment import enabled, worker_environment
from relkit.ttp.replicas import ReplicaMap

if TYPE_CHECKING:
    from relkit.trainer.checkpointing.persist import Persist

# Of glibc's malloc.h.
M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
KEEP_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class Job:
    """What `join_job` gives.

    Args:
        mesh: the groups of this rank.
        log, events: where the run is told of.
        persist: try-to-persist, where it is on.
    """

    mesh: Mesh
    log: RankLog
    events: EventStream
    persist: Persist | None

    @property
    def hooks(self) -> tuple[StepHooks, ...]:
        """For the trainer, after those of whoever makes it."""
        return () if self.persist is None else (self.persist,)

    @property
    def replicas(self) -> tuple[ReplicaMap, ReplicaMap] | None:
        """For the optimizer."""
        return None if self.persist is None else self.persist.replicas


@contextmanager
def join_job(config: TrainerConfig) -> Iterator[Job]:
    """Inside it this process is a rank of the job that its environment describes, if any.

    Raises:
        UsageProblem: the degrees do not fit the ranks, or the backend this host.
        UnwritablePath: logs cannot be written into `training.output_dir`.
    """
    rank, training = int(os.environ.get("RANK", "0")), config.training
    output_dir = Path(training.output_dir)
    keep_freed_memory()
    with ExitStack() as stack:
        log = stack.enter_context(RankLog(output_dir, rank))
        events = stack.enter_context(EventStream(output_dir, rank))
        environment = worker_environment() if enabled() and training.save else None
        kept = open_sockets() if environment is not None else ()
        if enabled() and environment is None:
            log.info("try-to-persist is off: there is no --save folder to save into")
        stack.enter_context(_process_group(training.distributed_backend))
        mesh = build_mesh(config.parallel, config.model, backend=training.distributed_backend)
        events.write("start", world_size=mesh.world.size, pid=os.getpid())
        persist = None
        if environment is not None:
            # Only here: a run without it loads nothing of it.
            from relkit.trainer.checkpointing.persist import Persist, RunLogger

            persist = Persist(environment, config, mesh, RunLogger(log.info, events.write), kept)
        yield Job(mesh, log, events, persist)


@contextmanager
def _process_group(backend: str) -> Iterator[None]:
    if dist.is_initialized() or "RANK" not in os.environ:
        yield
        return
    if backend == "nccl" and not torch.cuda.is_available():
        raise UsageProblem(
            "--distributed-backend nccl needs an NVIDIA GPU, and torch sees none here",
            next_step="Write --distributed-backend gloo to train on the CPU.",
        )
    dist.init_process_group(backend)
    try:
        yield
    finally:
        dist.destroy_process_group()


def keep_freed_memory() -> bool:
    """Have malloc reuse large freed blocks instead of giving each back to the kernel.

    Every large tensor on a CPU is otherwise new memory, whose pages the kernel clears one fault at
    a time, in every step; with GPT-2's vocabulary that was 30 % of a small model's step. The
    process then keeps what its largest step needed. Call it before the first large tensor is made.

    Returns:
        Whether the C library did so; it is left alone where it is not glibc.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    # An older glibc refuses thresholds above 32 MB.
    kept = mallopt(M_MMAP_THRESHOLD, KEEP_BYTES) or mallopt(M_MMAP_THRESHOLD, 1 << 25)
    return bool(kept and mallopt(M_TRIM_THRESHOLD, (1 << 31) - 1))
