"""Model, optimizer and position of a run on one rank, and the step that moves them on.

A step goes phase by phase. All that it changes besides weights and optimizer state is one
assignment of a new `Progress`, and from there back to the last collective nothing communicates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
import torch.distributed as dist
from torch import Tensor

from relkit import faults
from relkit.checkpoint import rng_state
from relkit.faults import CollectiveFault
from relkit.trainer.config.config import TrainerConfig
from relkit.trainer.core import rng
from relkit.trainer.core.build import build_model, loss_function
from relkit.trainer.core.evaluate import sum_and_count
from relkit.trainer.core.hooks import AllHooks, ReadyStep, StepHooks
from relkit.trainer.core.loss_scaler import LossScaler
from relkit.trainer.core.lr_schedule import learning_rate
from relkit.trainer.core.mesh import Group, Mesh
from relkit.trainer.core.optimizer import Optimizer, build_optimizer
from relkit.trainer.core.pipeline import run_step
from relkit.trainer.core.progress import Progress
from relkit.trainer.data.samples import MicroBatch, global_batch_size
from relkit.trainer.telemetry.events import PhaseClock
from relkit.ttp.replicas import ReplicaMap


class Trainer:
    """Model, optimizer and position of a run on one rank, and the step that moves them on.

    Args:
        config: of the run.
        mesh: built from its degrees.
        hooks: see `StepHooks`.
        replicas: see `build_optimizer`.
        optimizer: one that is made already, with the model that it is of; None: both are made here.

    Attributes:
        progress: the last committed step; replaced as a whole.
        stopping: some rank was asked to stop; known to all of them from the same step on.
    """

    def __init__(
        self,
        config: TrainerConfig,
        mesh: Mesh,
        *,
        hooks: Sequence[StepHooks] = (),
        replicas: tuple[ReplicaMap, ReplicaMap] | None = None,
        optimizer: Optimizer | None = None,
    ) -> None:
        self.config, self.mesh = config, mesh
        self.hooks = AllHooks(hooks)
        if optimizer is None:
            rng.seed_all(config.training.seed, mesh)
            made = build_model(config, mesh)
            optimizer = build_optimizer(*made, config, mesh, replicas=replicas)
        self.optimizer, self.chunks, self.infos = optimizer, optimizer.chunks, optimizer.infos
        self.loss_function = loss_function(config, mesh)
        self.scaler = LossScaler.start(config)
        self.batch_size = global_batch_size(config.dataset, mesh.data.size)
        self.progress = Progress(loss_scaler=self.scaler.state(), rng=rng_state.capture())
        self.clock = PhaseClock(self.hooks.phase)
        self.injector = faults.from_environment()
        self.stop_asked = self.stopping = False
        # Of its own, so that the collective which faults are injected into meets no other.
        self._telling = mesh.world
        if mesh.world.size > 1:
            self._telling = replace(mesh.world, process_group=dist.new_group())

    def train_step(self, micro_batches: Sequence[MicroBatch]) -> None:
        """One optimizer step on this rank's micro-batches, which all ranks make together."""
        self.injector.before_compute(self.progress.step)
        with self.clock("forward_backward"), self.injector.compute(self.progress.step):
            self.optimizer.zero_grad()
            losses = run_step(
                self.chunks,
                micro_batches,
                self.loss_function,
                self.mesh,
                self.config,
                grad_scale=self._grad_scale(len(micro_batches)),
            )
        with self.clock("reduce"):
            fault = self.injector.at_collective(self.progress.step, "gradients")
            if fault is CollectiveFault.NONE:
                self.optimizer.reduce_gradients()
            else:
                _all_reduce(torch.zeros(1, device=self.mesh.device), self.mesh.data, fault)
        with self.clock("prepare"):
            ready = self._prepare(losses)
        with self.clock("barrier"):
            self.hooks.gradients_ready(ready)
        with self.clock("update"):
            self.hooks.before_update(ready)
            self.finish(ready)
        self.hooks.after_commit(self.progress)
        with self.clock("gather"):
            self.optimizer.gather_parameters()

    def finish(self, ready: ReadyStep) -> None:
        """Update this rank's shard and commit; no communication, so any survivor can do it."""
        self.optimizer.update(ready.facts, ready.learning_rate)
        self.progress = ready.outcome

    def restore(self, progress: Progress) -> None:
        """Go on from a loaded step; weights and optimizer state are loaded already."""
        rng_state.restore(progress.rng)
        self.progress = progress

    def _grad_scale(self, micro_batches: int) -> float:
        scale = self._scaler().scale / micro_batches
        # "sum" leaves the sum over ranks of their means.
        return (
            scale / self.mesh.data.size if self.config.training.loss_reduction == "mean" else scale
        )

    def _scaler(self) -> LossScaler:
        return self.scaler.restored(self.progress.loss_scaler)

    def _prepare(self, losses: Sequence[Tensor]) -> ReadyStep:
        """All that becomes of this step: known on every rank before any of them changes state."""
        before, scaler = self.progress, self._scaler()
        facts = self.optimizer.prepare(scaler.scale)
        total, count, stops = self._tell(losses)
        self.stopping = self.stopping or stops > 0
        rate = learning_rate(
            self.config.optimizer,
            self.config.training.training_iters,
            before.step - before.skipped_steps,
        )
        outcome = Progress(
            step=before.step + 1,
            consumed_train_samples=before.consumed_train_samples + self.batch_size,
            consumed_valid_samples=self._valid_samples(before),
            skipped_steps=before.skipped_steps + (not facts.finite),
            loss_scaler=scaler.after(facts.finite).state(),
            rng=rng_state.capture(),
            metrics={
                "loss": total / max(count, 1),
                "finite": float(facts.finite),
                "grad_norm": facts.grad_norm,
                "learning_rate": rate,
                "loss_scale": scaler.scale,
            },
        )
        return ReadyStep(facts, rate, outcome)

    def _valid_samples(self, before: Progress) -> int:
        """Those of the evaluation after this step are counted with the step.

        So the position in the validation data follows from the step, and a checkpoint of it is the
        same whether it was written after the evaluation or by survivors of a fault before it.
        """
        training = self.config.training
        due = training.eval_interval and (before.step + 1) % training.eval_interval == 0
        return before.consumed_valid_samples + (self.batch_size * training.eval_iters if due else 0)

    def _tell(self, losses: Sequence[Tensor]) -> list[float]:
        """Sum and number of the losses, and of the ranks that were asked to stop, of all ranks."""
        asked = torch.tensor([float(self.stop_asked)], dtype=torch.float64, device=self.mesh.device)
        told = torch.cat((sum_and_count(losses, self.mesh), asked))
        _all_reduce(told, self._telling, self.injector.at_collective(self.progress.step))
        return [float(number) for number in told.tolist()]


def _all_reduce(tensor: Tensor, group: Group, fault: CollectiveFault) -> None:
    if group.size == 1 or fault is CollectiveFault.SKIP:
        return
    if fault is CollectiveFault.OTHER_OP:
        gathered = [torch.empty_like(tensor) for _ in range(group.size)]
        dist.all_gather(gathered, tensor, group=group.process_group)
    elif fault is CollectiveFault.OTHER_SIZE:
        dist.all_reduce(tensor.repeat(4096), group=group.process_group)
    else:
        dist.all_reduce(tensor, group=group.process_group)
