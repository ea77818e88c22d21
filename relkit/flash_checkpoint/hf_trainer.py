"""Hugging Face's Trainer: its state in memory after every step, as a TrainerCallback.

What a step is restored from becomes a checkpoint folder of the Trainer's own, `checkpoint-STEP`:
the Trainer resumes from it as from any other, and every tool opens it without relkit.

Source: the Trainer of transformers 4 and 5 (`Trainer._save_checkpoint` and what it calls).
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import ExportableState
from transformers.training_args import ParallelMode

from relkit.errors import BadInputFile, RelkitError, UnwritablePath, UsageProblem
from relkit.flash_checkpoint.ddp import DdpCheckpointer, StorageType
from relkit.flash_checkpoint.rank_group import RankGroup, group_of_job
from relkit.text.whole_number import whole_number

_STATE = "trainer_state.json"
_OTHER_MODEL, _UNWRITABLE = BadInputFile, UnwritablePath
_NEXT_STEPS = {
    _OTHER_MODEL: "Give the Trainer the model that was saved, or another output_dir.",
    _UNWRITABLE: "Make room there; or resume from an older checkpoint:"
    " trainer.train(resume_from_checkpoint=PATH).",
}
_WEIGHTS = ("model*.safetensors", "pytorch_model*.bin", "adapter_model.*")


@dataclass(frozen=True, slots=True)
class _Job:
    """What is known once the Trainer is."""

    trainer: Trainer
    ranks: RankGroup
    checkpointer: DdpCheckpointer


class FlashCheckpointCallback(TrainerCallback):  # type: ignore[misc]
    """Keeps model, optimizer, schedule, random generators and progress in memory, at every step.

        flash = FlashCheckpointCallback()
        trainer = Trainer(..., callbacks=[flash])
        trainer.train(resume_from_checkpoint=flash.newest(trainer))

    What the Trainer itself saves to disk (`save_strategy`) it saves as before. Under `relkit
    launch`, a dead worker costs at most the step whose copy into memory was under way.
    """

    def __init__(self) -> None:
        self._job: _Job | None = None
        # Of steps that have been logged: it grows with the job, and changes seldom.
        self._history: tuple[int, str] = (0, "[]")

    def newest(self, trainer: Trainer) -> str | None:
        """The folder to resume from, for `Trainer.train`. Every rank must call it, before that.

        Args:
            trainer: that this callback was given to.

        Returns:
            `checkpoint-STEP` in the Trainer's output_dir, written from memory where no newer one is
            there; None where nothing was saved.

        Raises:
            UsageProblem: the model is divided between ranks (FSDP, DeepSpeed).
            BadInputFile: what was saved is damaged, or of another model.
            UnwritablePath: the folder cannot be written.
        """
        _require_whole_model(trainer.args)
        if self._job is not None:
            self._job.checkpointer.close()
        folder, ranks = Path(trainer.args.output_dir), group_of_job()
        self._job = _Job(trainer, ranks, DdpCheckpointer(folder))
        own = ranks.all_gather(_newest_of_trainer(folder) if ranks.rank == 0 else -1)[0]
        own_folder = folder / f"checkpoint-{own}"
        state = self._job.checkpointer.load_newer(own, str(own_folder))
        if state:
            return str(_write_folder(trainer, ranks, state))
        return None if own < 0 else str(own_folder)

    def on_train_begin(self, *_: object, **__: object) -> None:
        """As of TrainerCallback."""
        self._known()
        self._history = (0, "[]")

    def on_step_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,  # noqa: ANN401
    ) -> None:
        """As of TrainerCallback: the step is saved while the next one begins."""
        job = self._known()
        scaler = getattr(job.trainer.accelerator, "scaler", None)
        kept = {
            "step": state.global_step,
            "ranks": job.ranks.world_size,
            "model": kwargs["model"].state_dict(),
            "optimizer": kwargs["optimizer"].state_dict(),
            "scheduler": kwargs["lr_scheduler"].state_dict(),
            "scaler": None if scaler is None else scaler.state_dict(),
            "random": _random_state(args),
            "trainer": self._progress(job.trainer, state, control),
        }
        job.checkpointer.save_checkpoint(state.global_step, kept, storage_type=StorageType.MEMORY)

    def on_train_end(self, *_: object, **__: object) -> None:
        """As of TrainerCallback: the last step is whole in memory."""
        self._known().checkpointer.wait_latest_checkpoint()

    def _known(self) -> _Job:
        if self._job is None:
            raise UsageProblem(
                "FlashCheckpointCallback does not know its Trainer",
                next_step="Write: trainer.train(resume_from_checkpoint=flash.newest(trainer))",
            )
        return self._job

    def _progress(self, trainer: Trainer, state: TrainerState, control: TrainerControl) -> str:
        """What the Trainer's own file says of a step."""
        if len(state.log_history) != self._history[0]:
            self._history = len(state.log_history), json.dumps(state.log_history)
        rest = {kept.name: getattr(state, kept.name) for kept in fields(state)}
        del rest["log_history"]
        rest["stateful_callbacks"] = _of_callbacks(trainer, state, control)
        return f'{json.dumps(rest)[:-1]}, "log_history": {self._history[1]}}}'


def _of_callbacks(trainer: Trainer, state: TrainerState, control: TrainerControl) -> dict[str, Any]:
    """States of the callbacks that have one: a list where there are several of a class."""
    states: dict[str, list[Any]] = {}
    for callback in (*trainer.callback_handler.callbacks, control):
        if isinstance(callback, ExportableState):
            states.setdefault(type(callback).__name__, []).append(callback.state())
    lists = {name for name, kept in state.stateful_callbacks.items() if isinstance(kept, list)}
    return {
        name: kept if name in lists or len(kept) > 1 else kept[0] for name, kept in states.items()
    }


def _require_whole_model(args: TrainingArguments) -> None:
    by = "DeepSpeed" if getattr(args, "deepspeed", None) else "FSDP"
    if by == "DeepSpeed" or getattr(args, "fsdp", None):
        raise UsageProblem(
            f"{by} divides the model between ranks, and this callback keeps whole ones",
            next_step="Leave the callback out, or train with DistributedDataParallel.",
        )


def _newest_of_trainer(folder: Path) -> int:
    """The newest step that the Trainer itself has saved, and has come to the end of; -1: none."""
    steps = [-1]
    for path in folder.glob("checkpoint-*"):
        step = whole_number(path.name.removeprefix("checkpoint-"))
        if step is not None and path.name == f"checkpoint-{step}" and _is_complete(path):
            steps.append(step)
    return max(steps)


def _is_complete(folder: Path) -> bool:
    # Written last, by the Trainer and here.
    return (folder / _STATE).is_file() and any(any(folder.glob(name)) for name in _WEIGHTS)


def _random_state(args: TrainingArguments) -> dict[str, Any]:
    """As the Trainer keeps it, by `Trainer._save_rng_state`."""
    kept: dict[str, Any] = {
        "python": random.getstate(),
        "numpy": np.random.get_state(),
        "cpu": torch.random.get_rng_state(),
    }
    if torch.cuda.is_available():
        all_of_rank = args.parallel_mode == ParallelMode.DISTRIBUTED
        cuda = torch.cuda.random
        kept["cuda"] = cuda.get_rng_state_all() if all_of_rank else cuda.get_rng_state()
    return kept


def _write_folder(trainer: Trainer, ranks: RankGroup, state: dict[str, Any]) -> Path:
    """Make what was saved a checkpoint of the Trainer's; every rank calls it."""
    should_save = trainer.args.should_save
    try:
        folder = Path(trainer.args.output_dir) / f"checkpoint-{state['step']}"
        unfinished = folder.with_name(f".{folder.name}.unfinished")
        _together(ranks, _OTHER_MODEL, lambda: trainer.model.load_state_dict(state["model"]))
        _together(ranks, _UNWRITABLE, lambda: _begin(unfinished) if should_save else None)
        _together(ranks, _UNWRITABLE, lambda: _write_parts(trainer, unfinished, state, ranks))
        _together(ranks, _UNWRITABLE, lambda: _finish(unfinished, folder) if should_save else None)
    except (KeyError, TypeError, AttributeError) as error:
        raise BadInputFile(
            f"{trainer.args.output_dir} was not saved by FlashCheckpointCallback: {error}",
            next_step="Give the Trainer an output_dir of its own.",
        ) from error
    return folder


def _together(ranks: RankGroup, why: type[RelkitError], act: Callable[[], object]) -> None:
    """Each rank does its part; where one fails, all do."""
    problem, cause = "", None
    try:
        act()
    except (OSError, RuntimeError, ValueError) as error:
        problem, cause = str(error).splitlines()[0][:300], error
    for rank, other in enumerate(ranks.all_gather(problem)):
        if other:
            raise why(
                f"rank {rank} cannot make the checkpoint to resume from: {other}",
                next_step=_NEXT_STEPS[why],
            ) from cause


def _begin(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


def _write_parts(trainer: Trainer, folder: Path, state: dict[str, Any], ranks: RankGroup) -> None:
    rank = f"_{trainer.args.process_index}" if ranks.world_size > 1 else ""
    if state["ranks"] == ranks.world_size:
        torch.save(state["random"], folder / f"rng_state{rank}.pth")
    if not trainer.args.should_save:
        return
    trainer.save_model(str(folder), _internal_call=True)
    torch.save(state["optimizer"], folder / "optimizer.pt")
    torch.save(state["scheduler"], folder / "scheduler.pt")
    if state["scaler"] is not None:
        torch.save(state["scaler"], folder / "scaler.pt")
    (folder / _STATE).write_text(state["trainer"], encoding="utf-8")


def _finish(unfinished: Path, folder: Path) -> None:
    # What may be there was not finished by the Trainer: it would be newer otherwise, and used.
    shutil.rmtree(folder, ignore_errors=True)
    unfinished.rename(folder)
