"""A small run for checkpoint tests: steps with dropout, whose state can be compared bit by bit."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import torch

from relkit.checkpoint import rng_state
from relkit.trainer.checkpointing import checkpoint
from relkit.trainer.config.config import TrainerConfig
from relkit.trainer.core import rng
from relkit.trainer.core.build import build_model, loss_function
from relkit.trainer.core.mesh import build_mesh
from relkit.trainer.core.optimizer import build_optimizer
from relkit.trainer.core.pipeline import run_step
from relkit.trainer.core.progress import Progress
from tests.trainer.layouts import Layout, micro_batches

DROPOUT = 0.1


def config_of(layout: Layout, model: str, optimizer: str = "AdamW") -> TrainerConfig:
    """A layout's configuration with dropout, so that random streams matter."""
    config = layout.config(model)
    return replace(
        config,
        model=replace(config.model, hidden_dropout=DROPOUT, attention_dropout=DROPOUT),
        optimizer=replace(config.optimizer, optimizer_type=optimizer, learning_rate=1e-2),
    )


class Run:
    """This process's part of a run."""

    def __init__(self, config: TrainerConfig) -> None:
        self.config = config
        self.mesh = build_mesh(config.parallel, config.model, backend="gloo")
        rng.seed_all(config.training.seed, self.mesh)
        self.chunks, self.infos = build_model(config, self.mesh)
        self.optimizer = build_optimizer(self.chunks, self.infos, config, self.mesh)
        self.loss = loss_function(config, self.mesh)
        self.progress = Progress(rng=rng_state.capture())

    def steps(self, count: int) -> list[str]:
        """Take some steps; the sum of each step's losses on this rank, in hexadecimal."""
        seen = []
        for _ in range(count):
            data = self.mesh.data
            batches = micro_batches(self.progress.step, rank=data.rank, ranks=data.size)
            self.optimizer.zero_grad()
            losses = run_step(
                self.chunks,
                batches,
                self.loss,
                self.mesh,
                self.config,
                grad_scale=1 / (len(batches) * data.size),
            )
            self.optimizer.reduce_gradients()
            self.optimizer.update(self.optimizer.prepare(), 1e-2)
            self.optimizer.gather_parameters()
            seen.append(float(sum(loss.item() for loss in losses)).hex())
            self.progress = Progress(
                step=self.progress.step + 1,
                consumed_train_samples=self.progress.consumed_train_samples + 16,
                skipped_steps=1,
                loss_scaler={"scale": 4096.0, "growth_tracker": 3.0},
                metrics={"loss": 0.1},
                rng=rng_state.capture(),
            )
        return seen

    def save(self, folder: Path) -> Path:
        """Save where the run stands."""
        return checkpoint.save(
            folder,
            step=self.progress.step,
            chunks=self.chunks,
            infos=self.infos,
            optimizer=self.optimizer,
            progress=self.progress,
            config=self.config,
            mesh=self.mesh,
        )

    def load(self, folder: Path, step: int | None = None) -> None:
        """Go on from what was saved."""
        self.progress = checkpoint.load(
            folder,
            chunks=self.chunks,
            infos=self.infos,
            optimizer=self.optimizer,
            config=self.config,
            mesh=self.mesh,
            step=step,
        )
        rng_state.restore(self.progress.rng)

    def digest(self) -> str:
        """Of everything that the next step depends on; of the whole state on writing ranks."""
        digest = hashlib.sha256(repr(rng_state.capture()).encode())
        for chunk in self.chunks:
            for name, parameter in chunk.named_parameters():
                digest.update(name.encode() + parameter.detach().numpy().tobytes())
        digest.update(self.state_digest().encode())
        return digest.hexdigest()

    def state_digest(self) -> str:
        """Of the optimizer's state without its cuts: the same on any data-parallel size."""
        digest = hashlib.sha256()
        state = self.optimizer.full_state()
        digest.update(str(state["steps"]).encode())
        tensors = [content for content in state["buffers"] if content is not None]
        tensors += list(state["came"].values())
        for content in tensors:
            for name, tensor in sorted(content.items()):
                assert isinstance(tensor, torch.Tensor)
                digest.update(name.encode() + tensor.numpy().tobytes())
        return digest.hexdigest()
