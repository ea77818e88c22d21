"""The training loop: what one rank does from its configuration to the last checkpoint.

`pretrain(config)` is the whole run; a step of it is `Trainer.train_step`.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from types import FrameType

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

from relkit.errors import EXIT_OK, BadInputFile, RelkitError, UsageProblem
from relkit.trainer import checkpoint, checkpoint_files
from relkit.trainer.config import TrainerConfig
from relkit.trainer.data import GPTDataset, MicroBatch, batches, build_datasets
from relkit.trainer.evaluate import evaluate
from relkit.trainer.events import EventStream
from relkit.trainer.flops import flops_per_token, peak_flops
from relkit.trainer.hooks import StepHooks
from relkit.trainer.log import RankLog, short, step_line
from relkit.trainer.mesh import build_mesh
from relkit.trainer.together import together
from relkit.trainer.trainer import Trainer


class Run:
    """A trainer with its data, its log and its checkpoints."""

    def __init__(self, trainer: Trainer, log: RankLog, events: EventStream) -> None:
        self.trainer, self.log, self.events = trainer, log, events
        self.config, self.mesh = trainer.config, trainer.mesh
        self.data = build_datasets(self.config, data_parallel_size=self.mesh.data.size)
        index = self.data.train.index
        epochs = int((index.documents == index.documents[0]).sum())
        self.samples_per_epoch = max(1, len(index.shuffle) // epochs)
        self.tokens_per_step = trainer.batch_size * self.config.model.seq_length
        self.flops_per_step = flops_per_token(self.config.model) * self.tokens_per_step
        self.peak = peak_flops(self.config, self.mesh)
        self.saved_step: int | None = None
        self.data_lock, self.log_lock, self.file_lock = (threading.Lock() for _ in range(3))

    def resume(self) -> None:
        """Load the latest checkpoint, where that is asked for and there is one."""
        training, trainer = self.config.training, self.trainer
        folder = training.load or training.save
        if not training.resume_training or not folder:
            return
        seen = together(self.mesh, lambda: checkpoint_files.latest(Path(folder)))
        if len(set(seen)) > 1:
            # Known to all ranks alike: none of them waits for one that starts from nothing.
            other = next(rank for rank, step in enumerate(seen) if step != seen[0])
            raise BadInputFile(
                f"rank 0 sees step {seen[0]} in {folder}, and rank {other} step {seen[other]}",
                next_step="Load from a folder that all nodes share, or copy it to each of them.",
            )
        if seen[0] is None:
            self.log.info(f"no checkpoint in {folder}: training starts from its first step")
            return
        trainer.restore(
            checkpoint.load(
                Path(folder),
                chunks=trainer.chunks,
                infos=trainer.infos,
                optimizer=trainer.optimizer,
                config=self.config,
                mesh=self.mesh,
            )
        )
        self.saved_step = trainer.progress.step if folder == training.save else None
        self.log.info(f"resumed from step {trainer.progress.step} of {folder}")
        self.events.write("resume", step=trainer.progress.step, folder=folder)

    def train(self) -> None:
        """Step until training_iters, or until some rank is asked to stop."""
        training, trainer = self.config.training, self.trainer
        coming = self._batches(self.data.train, trainer.progress.consumed_train_samples)
        seconds_since_line, steps_since_line = 0.0, 0
        while trainer.progress.step < training.training_iters and not trainer.stopping:
            started_s = time.perf_counter()
            with trainer.clock("data"):
                micro_batches = self._next(coming)
            trainer.train_step(micro_batches)
            step_s = time.perf_counter() - started_s
            seconds_since_line, steps_since_line = seconds_since_line + step_s, steps_since_line + 1
            self._write_step(step_s)
            if _due(training.log_interval, trainer.progress.step):
                self._say_step(seconds_since_line / steps_since_line)
                seconds_since_line, steps_since_line = 0.0, 0
            if _due(training.eval_interval, trainer.progress.step) and not trainer.stopping:
                self.evaluate("validation", self.data.valid)
            if _due(training.save_interval, trainer.progress.step):
                self.save()
        self.save()
        if trainer.stopping:
            self.log.info(f"stopped after step {trainer.progress.step}, as asked by a signal")
            self.events.write("stop", step=trainer.progress.step)
            return
        if training.eval_interval and trainer.progress.step % training.eval_interval:
            self.evaluate("validation", self.data.valid)
        self.evaluate("test", self.data.test)
        self.events.write("end", step=trainer.progress.step)

    def evaluate(self, name: str, dataset: GPTDataset | None) -> None:
        """Say the loss on eval_iters global batches of a split; nothing without that split."""
        trainer, iters = self.trainer, self.config.training.eval_iters
        if dataset is None or iters == 0:
            return
        begin = trainer.progress.consumed_valid_samples if name == "validation" else 0
        started_s = time.perf_counter()
        trainer.hooks.phase("evaluate")
        loss = evaluate(
            trainer.chunks,
            islice(self._batches(dataset, begin), iters),
            trainer.loss_function,
            self.mesh,
            self.config,
        )
        elapsed_s = time.perf_counter() - started_s
        step = trainer.progress.step
        if name == "validation":
            consumed = begin + iters * trainer.batch_size
            trainer.progress = replace(trainer.progress, consumed_valid_samples=consumed)
        self.log.info(f"{name}: Step:{step}, Loss: {short(loss)}, Time: {elapsed_s * 1e3:.2f} ms")
        self.events.write("evaluate", step=step, split=name, loss=loss, elapsed_s=elapsed_s)

    def save(self) -> None:
        """Write a checkpoint of the committed step, unless there is one already."""
        trainer, training = self.trainer, self.config.training
        step = trainer.progress.step
        if not training.save or step in (0, self.saved_step):
            return
        started_s = time.perf_counter()
        trainer.hooks.phase("save")
        checkpoint.save(
            Path(training.save),
            step=step,
            chunks=trainer.chunks,
            infos=trainer.infos,
            optimizer=trainer.optimizer,
            progress=trainer.progress,
            config=self.config,
            mesh=self.mesh,
        )
        self.saved_step = step
        elapsed_s = time.perf_counter() - started_s
        self.log.info(f"saved step {step} to {training.save} in {elapsed_s * 1e3:.0f} ms")
        self.events.write("save", step=step, folder=training.save, elapsed_s=elapsed_s)

    def _batches(self, dataset: GPTDataset | None, consumed: int) -> Iterator[list[MicroBatch]]:
        assert dataset is not None
        return batches(
            dataset,
            dp_rank=self.mesh.data.rank,
            dp_size=self.mesh.data.size,
            micro_batch_size=self.config.dataset.micro_batch_size,
            global_batch_size=self.trainer.batch_size,
            consumed_samples=consumed,
        )

    def _next(self, coming: Iterator[list[MicroBatch]]) -> list[MicroBatch]:
        self.trainer.injector.before_batch(self.trainer.progress.step, self.data_lock)
        with self.data_lock:
            found = next(coming, None)
        if found is None:
            raise BadInputFile(
                f"{self.config.dataset.data_path} has no samples left after step"
                f" {self.trainer.progress.step}"
            )
        return found

    def _write_step(self, step_s: float) -> None:
        progress = self.trainer.progress
        facts = {**progress.metrics, "finite": bool(progress.metrics["finite"])}
        self.events.write(
            "step",
            step=progress.step,
            **facts,
            step_s=round(step_s, 6),
            tokens=self.tokens_per_step,
            phases_s=self.trainer.clock.take(),
        )

    def _say_step(self, step_s: float) -> None:
        """The log line; its two locks are what a logger with a flusher has, for faults.deadlock."""
        progress = self.trainer.progress
        before = progress.consumed_train_samples - self.trainer.batch_size
        line = step_line(
            before // self.samples_per_epoch,
            progress.step,
            progress.metrics,
            step_s=step_s,
            tokens_per_s=self.tokens_per_step / step_s,
            mfu=self.flops_per_step / step_s / self.peak,
        )
        with self.log_lock:
            self.trainer.injector.before_log(progress.step - 1, self.log_lock, self.file_lock)
            with self.file_lock:
                self.log.info(line)


def _due(interval: int | None, step: int) -> bool:
    return interval is not None and step % interval == 0


@contextmanager
def _stop_on_sigterm(trainer: Trainer) -> Iterator[None]:
    """SIGTERM ends the run after the step under way, with a checkpoint."""

    def ask(number: int, frame: FrameType | None) -> None:
        trainer.stop_asked = True

    if threading.current_thread() is not threading.main_thread():
        yield  # only a main thread may have handlers
        return
    before = signal.signal(signal.SIGTERM, ask)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _joined(backend: str) -> Iterator[None]:
    """Inside it this process is in the job that its environment describes, if any."""
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


def pretrain(config: TrainerConfig, *, hooks: Sequence[StepHooks] = ()) -> int:
    """Train as the configuration says; every rank of the job calls it.

    Args:
        hooks: see `StepHooks`.

    Returns:
        The exit code: 0 at the end and after a SIGTERM; an error's own code, said on stderr.
    """
    code = _pretrain(config, hooks)
    assert code is not None
    return code


@record  # so that torchrun and `relkit launch` show the first rank that failed, and why
def _pretrain(config: TrainerConfig, hooks: Sequence[StepHooks]) -> int:
    rank = int(os.environ.get("RANK", "0"))
    output_dir = Path(config.training.output_dir)
    try:
        with ExitStack() as stack:
            log = stack.enter_context(RankLog(output_dir, rank))
            events = stack.enter_context(EventStream(output_dir, rank))
            stack.enter_context(_joined(config.training.distributed_backend))
            mesh = build_mesh(
                config.parallel, config.model, backend=config.training.distributed_backend
            )
            events.write("start", world_size=mesh.world.size, pid=os.getpid())
            trainer = Trainer(config, mesh, hooks=hooks)
            run = Run(trainer, log, events)
            run.resume()
            stack.enter_context(_stop_on_sigterm(trainer))
            run.train()
    except RelkitError as error:
        print(f"relkit: {error}\n  next: {error.next_step}", file=sys.stderr, flush=True)
        return error.exit_code
    return EXIT_OK
