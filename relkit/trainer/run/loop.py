"""The training loop: what one rank does from its configuration to the last checkpoint.

`pretrain(config)` is the whole run; a step of it is `Trainer.train_step`.
"""

from __future__ import annotations

import gc
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from types import FrameType

from torch.distributed.elastic.multiprocessing.errors import record

from relkit.accounting.worker_notes import RateNotes, note_total, noted_load
from relkit.checkpoint import iteration_folder
from relkit.errors import EXIT_OK, BadInputFile, RelkitError
from relkit.hook.marks import input_wait, mark_step
from relkit.trainer.checkpointing import checkpoint
from relkit.trainer.checkpointing.on_all_ranks import on_all_ranks
from relkit.trainer.config.config import TrainerConfig
from relkit.trainer.core.evaluate import evaluate
from relkit.trainer.core.hooks import StepHooks
from relkit.trainer.core.trainer import Trainer
from relkit.trainer.data.samples import Datasets, GPTDataset, MicroBatch, batches, build_datasets
from relkit.trainer.run.flops import flops_per_token, peak_flops
from relkit.trainer.run.job import Job, join_job
from relkit.trainer.telemetry.events import EventStream
from relkit.trainer.telemetry.log import RankLog, short, step_line


class Run:
    """A trainer with its data, its log and its checkpoints."""

    def __init__(
        self, trainer: Trainer, log: RankLog, events: EventStream, data: Datasets | None = None
    ) -> None:
        self.trainer, self.log, self.events = trainer, log, events
        self.config, self.mesh = trainer.config, trainer.mesh
        self.data = data or build_datasets(self.config, data_parallel_size=self.mesh.data.size)
        index = self.data.train.index
        epochs = int((index.documents == index.documents[0]).sum())
        self.samples_per_epoch = max(1, len(index.shuffle) // epochs)
        self.tokens_per_step = trainer.batch_size * self.config.model.seq_length
        self.flops_per_step = flops_per_token(self.config.model) * self.tokens_per_step
        self.peak = peak_flops(self.config, self.mesh)
        self.rates = RateNotes()
        self.saved_step: int | None = None
        self.data_lock, self.log_lock, self.file_lock = (threading.Lock() for _ in range(3))

    def resume(self, *, after_a_fault: bool = False) -> None:
        """Load the latest checkpoint, where that is asked for and there is one.

        Args:
            after_a_fault: this job was started again, and has saved what it had; then that is what
                it goes on from, whatever the configuration says.
        """
        training, trainer = self.config.training, self.trainer
        folder = training.load or training.save
        if after_a_fault and training.save:
            folder = training.save
        elif not training.resume_training or not folder:
            return
        if all(on_all_ranks(self.mesh, lambda: iteration_folder.is_release(Path(folder)))):
            self._begin_with_release(Path(folder))
            return
        seen = on_all_ranks(self.mesh, lambda: iteration_folder.latest(Path(folder)))
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
        with noted_load() as load:
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
            load.step, load.source = trainer.progress.step, "disk"
        self.saved_step = trainer.progress.step if folder == training.save else None
        self.log.info(f"resumed from step {trainer.progress.step} of {folder}")
        self.events.write("resume", step=trainer.progress.step, folder=folder)
        self._make_up_for_lost_lines()

    def _begin_with_release(self, folder: Path) -> None:
        trainer = self.trainer
        checkpoint.load_release(
            folder,
            chunks=trainer.chunks,
            optimizer=trainer.optimizer,
            config=self.config,
            mesh=self.mesh,
        )
        self.log.info(f"weights from {folder / iteration_folder.RELEASE}: training starts anew")

    def train(self) -> None:
        """Step until training_iters, or until some rank is asked to stop."""
        training, trainer = self.config.training, self.trainer
        if self._lacks_evaluation():
            self._validate()
        coming = self._batches(self.data.train, trainer.progress.consumed_train_samples)
        seconds_since_line, steps_since_line = 0.0, 0
        note_total(training.training_iters)
        while trainer.progress.step < training.training_iters and not trainer.stopping:
            started_s = time.perf_counter()
            mark_step(trainer.progress.step)
            with trainer.clock("data"), input_wait():
                micro_batches = self._next(coming)
            trainer.train_step(micro_batches)
            step_s = time.perf_counter() - started_s
            seconds_since_line, steps_since_line = seconds_since_line + step_s, steps_since_line + 1
            self._write_step(step_s)
            if _due(training.log_interval, trainer.progress.step):
                self._say_step(seconds_since_line / steps_since_line)
                seconds_since_line, steps_since_line = 0.0, 0
            if _due(training.eval_interval, trainer.progress.step) and not trainer.stopping:
                self._validate()
            if _due(training.save_interval, trainer.progress.step):
                self.save()
        self.save()
        if trainer.stopping:
            self.log.info(f"stopped after step {trainer.progress.step}, as asked by a signal")
            self.events.write("stop", step=trainer.progress.step)
            return
        if training.eval_interval and trainer.progress.step % training.eval_interval:
            self.evaluate("validation", self.data.valid, trainer.progress.consumed_valid_samples)
        self.evaluate("test", self.data.test, 0)
        self.events.write("end", step=trainer.progress.step)

    def evaluate(self, name: str, dataset: GPTDataset | None, begin: int) -> None:
        """Say the loss on eval_iters global batches of a split; nothing without that split.

        Args:
            begin: number of the first sample.
        """
        trainer, iters = self.trainer, self.config.training.eval_iters
        if dataset is None or iters == 0:
            return
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

    def _validate(self) -> None:
        """The evaluation that is due after a step, whose samples are counted with the step."""
        samples = self.config.training.eval_iters * self.trainer.batch_size
        begin = self.trainer.progress.consumed_valid_samples - samples
        # A run that was saved with another interval may not have counted as many yet.
        self.evaluate("validation", self.data.valid, max(0, begin))

    def _make_up_for_lost_lines(self) -> None:
        """Write what the last step would have said, had a fault not ended the run right after it.

        Survivors save a step that nobody has told of yet; its metrics are in the checkpoint.
        """
        progress, latest = self.trainer.progress, self.events.latest()
        steps = [event["step"] for event in latest if event["event"] == "step"]
        if not steps and sum(event["event"] == "start" for event in latest) > 1:
            steps = [0]  # a run began here, and was ended right after its first step
        if not progress.metrics or not steps or steps[-1] != progress.step - 1:
            return
        facts = {**progress.metrics, "finite": bool(progress.metrics["finite"])}
        self.events.write("step", step=progress.step, **facts, made_up=True)
        if _due(self.config.training.log_interval, progress.step):
            line = step_line(
                self._epoch(), progress.step, progress.metrics, step_s=1.0, tokens_per_s=0.0
            )
            # How long the step took is not known.
            self.log.info(f"{line.partition(', Time:')[0]}, from the checkpoint")

    def _lacks_evaluation(self) -> bool:
        """Whether a fault has come between the resumed step and the evaluation after it."""
        step = self.trainer.progress.step
        if not step or self.saved_step != step or self.data.valid is None:
            return False
        if not _due(self.config.training.eval_interval, step):
            return False
        told = [event for event in self.events.latest() if event.get("step") == step]
        kinds = [event["event"] for event in told]
        lacks = "step" in kinds and "evaluate" not in kinds
        return any(on_all_ranks(self.mesh, lambda: lacks))

    def _epoch(self) -> int:
        before = self.trainer.progress.consumed_train_samples - self.trainer.batch_size
        return before // self.samples_per_epoch

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
            batch = next(coming, None)
        if batch is None:
            raise BadInputFile(
                f"{self.config.dataset.data_path} has no samples left after step"
                f" {self.trainer.progress.step}"
            )
        return batch

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
        tokens_per_s, mfu = self.tokens_per_step / step_s, self.flops_per_step / step_s / self.peak
        self.rates.note(tokens_per_s, mfu)
        line = step_line(
            self._epoch(),
            progress.step,
            progress.metrics,
            step_s=step_s,
            tokens_per_s=tokens_per_s,
            mfu=mfu,
        )
        with self.log_lock:
            self.trainer.injector.before_log(progress.step - 1, self.log_lock, self.file_lock)
            with self.file_lock:
                self.log.info(line)


def _due(interval: int | None, step: int) -> bool:
    return interval is not None and step % interval == 0


def train_in(job: Job, trainer: Trainer, data: Datasets | None = None) -> None:
    """The whole run of a trainer: from where it goes on to its last checkpoint.

    Args:
        job: that its mesh is of.
        data: of `build_datasets`; None: it is opened here.
    """
    run = Run(trainer, job.log, job.events, data)
    if job.persist is None:
        run.resume()
        with _stop_on_sigterm(trainer):
            run.train()
    else:
        run.resume(after_a_fault=job.persist.saved_before())
        job.persist.run(trainer, run.train)


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


def pretrain(config: TrainerConfig, *, hooks: Sequence[StepHooks] = ()) -> int:
    """Train as the configuration says; every rank of the job calls it.

    Args:
        hooks: see `StepHooks`.

    Returns:
        The exit code: 0 at the end and after a SIGTERM; an error's own code, said on stderr.
    """
    code = _pretrain(config, hooks)
    assert code is not None
    # Process groups that are still in a cycle of references would end with the interpreter, whose
    # threads then die inside C++ ("terminate called without an active exception").
    gc.collect()
    return code


@record  # so that torchrun and `relkit launch` show the first rank that failed, and why
def _pretrain(config: TrainerConfig, hooks: Sequence[StepHooks]) -> int:
    try:
        with join_job(config) as job:
            hooks = [*hooks, *job.hooks]
            train_in(job, Trainer(config, job.mesh, hooks=hooks, replicas=job.replicas))
    except RelkitError as error:
        print(f"relkit: {error}\n  next: {error.next_step}", file=sys.stderr, flush=True)
        return error.exit_code
    return EXIT_OK
