"""Try-to-persist in the trainer: survivors of a fault write the last committed step.

The loop's hooks say where each rank is (`relkit.ttp.rank_state`); after a fault the controller's
commands come back as the handlers here: make the step whose gradients are reduced, or give shards
to the ranks that write, through the same code that writes a periodic checkpoint.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from relkit.checkpoint import iteration_folder
from relkit.checkpoint.manifest import FileRecord
from relkit.trainer.checkpointing import checkpoint
from relkit.trainer.checkpointing.audit import audit
from relkit.trainer.checkpointing.on_all_ranks import on_all_ranks
from relkit.trainer.checkpointing.optimizer_shards import gathered_state, group_name
from relkit.trainer.config.config import TrainerConfig
from relkit.trainer.core.hooks import ReadyStep
from relkit.trainer.core.mesh import Group, Mesh
from relkit.trainer.core.progress import Progress
from relkit.trainer.core.trainer import Trainer
from relkit.trainer.megatron import names as names
from relkit.ttp import fault_injector
from relkit.ttp.environment import WorkerEnvironment, saved_since_the_start
from relkit.ttp.handlers import Handlers, SaveRequest
from relkit.ttp.rank_state import RankState
from relkit.ttp.replicas import ReplicaMap, bytes_per_parameter, replica_map
from relkit.ttp.session import Session

# Phases of the loop by the names that faults are injected under.
_INJECTED = {"forward_backward": "forward"}
_AFTER_THE_COMMIT = ("gather", "save", "evaluate", "data")


@dataclass(frozen=True, slots=True)
class RunLogger:
    """How a rank is heard.

    Args:
        info: a line of the log; event: an event's name and facts.
    """

    info: Callable[[str], None]
    event: Callable[..., None]


@dataclass(frozen=True, slots=True)
class _Kept:
    """The state of the step before, with a local copy."""

    tensors: tuple[Tensor, ...]
    steps: int
    progress: Progress


class Persist:
    """One rank's loop under try-to-persist; it is also the loop's `StepHooks`.

    Args:
        environment: what the launcher tells; kept: `collective_aborter.open_sockets`, taken before
            groups were made.
        config: of the run; `training.save` is the folder to save into.
        mesh: of this rank. Every rank must make a Persist.
        logger: see RunLogger.

    Attributes:
        differences: pairs of copies that the audit found unequal so far.
    """

    def __init__(
        self,
        environment: WorkerEnvironment,
        config: TrainerConfig,
        mesh: Mesh,
        logger: RunLogger,
        kept: tuple[str, ...] = (),
    ) -> None:
        self.config, self.mesh = config, mesh
        self._environment, self._log, self._open_before = environment, logger, kept
        self._hosts = _hosts(mesh)
        dense, expert = self._map(mesh.data), self._map(mesh.expert_data, expert=True)
        # Without expert parallelism experts are on the same ranks as everything else.
        self._maps = (dense, expert if mesh.expert.size > 1 else dense)
        self._fault_injector = fault_injector.from_environment()
        self._trainer: Trainer | None = None
        self._state: RankState | None = None
        self._ready: ReadyStep | None = None
        self._kept: _Kept | None = None
        self._audited_step = 0
        self.differences = 0

    @property
    def replicas(self) -> tuple[ReplicaMap, ReplicaMap] | None:
        """For `build_optimizer`; None where every rank has everything anyway."""
        return self._maps if self.config.training.use_distributed_optimizer else None

    def saved_before(self) -> bool:
        """Whether this job has saved something before it was started again; all ranks must ask."""
        notes, folder = self._environment.marks, Path(self.config.training.save)
        return any(on_all_ranks(self.mesh, lambda: saved_since_the_start(notes, folder)))

    def run(self, trainer: Trainer, train: Callable[[], None]) -> None:
        """Run the loop; after a fault this saves what it can, and does not return."""
        self._trainer = trainer
        self._say_start()
        if self.mesh.world.rank == 0:
            self._clean_up()
        handlers = Handlers(
            root=Path(self.config.training.save),
            save=self._save,
            roll_forward=self._roll_forward,
            rollback=self._rollback if self.config.training.local_copy_os else None,
            facts=self._facts,
        )
        maps = self._maps if self.mesh.expert.size > 1 else self._maps[:1]
        session = Session(
            self._environment,
            rank=self.mesh.world.global_rank,
            world_size=self.mesh.world.size,
            maps=maps,
            step=trainer.progress.step,
            handlers=handlers,
            kept=self._open_before,
        )
        self._state = session.state
        if self._fault_injector.expects("backward"):
            first = next(iter(trainer.chunks[-1].parameters()))
            first.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
                lambda _: self._fault_injector.at("backward", trainer.progress.step + 1)
            )
        session.run(train)

    def phase(self, name: str) -> None:
        """See `StepHooks`."""
        trainer, state = self._running()
        state.phase(name)
        if name == "data":
            self._audit(trainer)
        making = 0 if name in _AFTER_THE_COMMIT else 1
        if name not in ("barrier", "update"):
            self._fault_injector.at(_INJECTED.get(name, name), trainer.progress.step + making)

    def gradients_ready(self, ready: ReadyStep) -> None:
        """See `StepHooks`; no rank updates anything before all ranks are here."""
        _, state = self._running()
        self._ready = ready
        state.gradients_ready()
        self._fault_injector.at("barrier", ready.outcome.step)
        if not self.config.training.local_copy_os and self.mesh.world.size > 1:
            # NCCL has no barrier without a device.
            on_gpu = self.mesh.device.type == "cuda"
            devices = [self.mesh.device.index] if on_gpu else None
            dist.barrier(group=self.mesh.world.process_group, device_ids=devices)

    def before_update(self, ready: ReadyStep) -> None:
        """See `StepHooks`."""
        trainer, state = self._running()
        copies = self.config.training.local_copy_os
        if copies:
            self._keep(trainer)
        state.begin_update(previous=copies)
        self._fault_injector.at("update", ready.outcome.step)

    def after_commit(self, progress: Progress) -> None:
        """See `StepHooks`."""
        _, state = self._running()
        state.end_update(progress.step)

    def _clean_up(self) -> None:
        """Remove what a periodic save left that was killed; nobody saves before this rank does."""
        for unfinished in iteration_folder.half_written(Path(self.config.training.save)):
            try:
                iteration_folder.abandon(unfinished)
            except OSError as error:
                self._log.info(f"{unfinished} could not be removed: {error.strerror}")

    def _running(self) -> tuple[Trainer, RankState]:
        assert self._trainer is not None
        assert self._state is not None
        return self._trainer, self._state

    def _map(self, group: Group, *, expert: bool = False) -> ReplicaMap:
        name = group_name(self.mesh, expert=expert)
        training = self.config.training
        if not training.use_distributed_optimizer:
            return ReplicaMap(name, group.ranks, (group.ranks,))
        copies = min(training.ttp_copies, group.size)
        return replica_map(name, group.ranks, copies=copies, hosts=self._hosts)

    def _say_start(self) -> None:
        training = self.config.training
        adam = self.config.optimizer.optimizer_type in ("Adam", "AdamW")
        for each in dict.fromkeys(self._maps):
            copies, size = len(each.holders[0]), len(each.ranks)
            if copies == 1:
                self._log.info(
                    f"try-to-persist: group {each.name} has no second copy of its optimizer state"
                    f" ({size} data-parallel rank{'s' * (size > 1)}): the loss of any of its ranks"
                    " cannot be made good"
                )
            elif len(set(self._hosts.values())) > 1 and (alone := each.unprotected(self._hosts)):
                shards = ", ".join(map(str, alone))
                self._log.info(
                    f"try-to-persist: all copies of shard {shards} of group {each.name} are on one"
                    " host, which must not be lost"
                )
            if training.use_distributed_optimizer and adam:
                bytes_each = bytes_per_parameter(size, copies)
                self._log.info(
                    f"try-to-persist: group {each.name} keeps {copies} copies of each shard:"
                    f" {bytes_each:.2f} bytes per parameter,"
                    f" {bytes_per_parameter(size, 1):.2f} without"
                )

    def _roll_forward(self, step: int) -> None:
        trainer, _ = self._running()
        assert self._ready is not None
        assert self._ready.outcome.step == step
        trainer.finish(self._ready)

    def _keep(self, trainer: Trainer) -> None:
        changing = trainer.optimizer.changing()
        if self._kept is None:
            tensors = tuple(tensor.clone() for tensor in changing)
        else:
            tensors = self._kept.tensors
            torch._foreach_copy_(tensors, changing)
        self._kept = _Kept(tensors, trainer.optimizer.steps, trainer.progress)

    def _rollback(self, step: int) -> None:
        trainer, _ = self._running()
        kept = self._kept
        assert kept is not None
        assert kept.progress.step == step
        torch._foreach_copy_(trainer.optimizer.changing(), kept.tensors)
        trainer.optimizer.steps, trainer.progress = kept.steps, kept.progress

    def _save(self, request: SaveRequest) -> list[FileRecord]:
        """This rank's part of an emergency save: shards for others, and a file if it writes one."""
        trainer, _ = self._running()
        self._fault_injector.at("emergency_save", request.step)
        state = gathered_state(trainer.optimizer, request)
        if state is None:
            return []
        content = checkpoint.contents(
            trainer.chunks, trainer.optimizer, state, trainer.progress, self.config, self.mesh
        )
        return [
            iteration_folder.write_file(
                request.folder,
                f"{names.rank_folder(self.mesh)}/{name}",
                lambda out, plain=plain: torch.save(plain, out),  # type: ignore[misc]
            )
            for name, plain in content.items()
        ]

    def _facts(self) -> Mapping[str, Any]:
        trainer, _ = self._running()
        return checkpoint.manifest_facts(trainer.infos, trainer.progress, self.config, self.mesh)

    def _audit(self, trainer: Trainer) -> None:
        """At the beginning of a step, when every rank has gathered the weights of the last one."""
        every, step = self.config.training.ttp_audit_interval, trainer.progress.step
        if every is None or step % every or step <= self._audited_step:
            return
        self._audited_step = step
        for difference in audit(trainer.optimizer):
            self.differences += 1
            expert = trainer.optimizer.places[difference.buffer][1]
            group = self._maps[expert].name
            self._log.info(
                f"try-to-persist: silent corruption at step {step} in group {group}: {difference}"
                f" ({self.differences} so far)"
            )
            self._log.event(
                "replica_difference",
                step=step,
                group=group,
                what=difference.what,
                shard=difference.shard,
                ranks=list(difference.ranks),
                wrong=list(difference.wrong),
                count=self.differences,
            )


def _hosts(mesh: Mesh) -> dict[int, str]:
    """Each rank's host; two launchers on one machine (in tests, in containers) count as two."""
    mine = f"{socket.gethostname()}/{os.environ.get('GROUP_RANK', '0')}"
    hosts = [mine]
    if mesh.world.size > 1:
        hosts = [""] * mesh.world.size
        dist.all_gather_object(hosts, mine, group=mesh.world.process_group)
    return dict(zip(mesh.world.ranks, hosts, strict=True))
