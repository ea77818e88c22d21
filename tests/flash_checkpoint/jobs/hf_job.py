"""Hugging Face's Trainer with the callback that keeps every step in memory.

    hf_job.py FOLDER STEPS KILL

Rank 1 kills itself in the first attempt when it has made step KILL. A job that comes to its end
trains once more from the beginning without the callback, and prints what the model was after each
step as that of "undisturbed".
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
from pathlib import Path

import torch
from torch.utils.data import Dataset
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
    set_seed,
)

from relkit.flash_checkpoint.hf_trainer import FlashCheckpointCallback
from tests.job_end import end_rank

SIZE, VOCABULARY, LENGTH = 40, 32, 8


class Texts(Dataset[dict[str, torch.Tensor]]):
    """Without chance: the Trainer draws a batch before the step ahead of it is saved."""

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = torch.arange(index, index + LENGTH) * index % VOCABULARY
        return {"input_ids": tokens, "labels": tokens}


class Deeds(TrainerCallback):  # type: ignore[misc]
    """Prints what the model is after each step; rank 1 may die."""

    def __init__(self, name: str, kill: int) -> None:
        self.name, self.kill = name, kill

    def on_step_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        *,
        model: torch.nn.Module,
        **_: object,
    ) -> None:
        """As of TrainerCallback."""
        digest = hashlib.sha256(b"".join(p.numpy().tobytes() for p in model.state_dict().values()))
        line = f"{self.name} rank {args.process_index} step {state.global_step} "
        os.write(1, f"{line}{digest.hexdigest()}\n".encode())
        if args.process_index == 1 and state.global_step == self.kill:
            os.kill(os.getpid(), signal.SIGKILL)


def train(folder: Path, steps: int, name: str, kill: int = -1, *, keeps: bool = True) -> Trainer:
    """Train, from the newest step where the callback has one."""
    backend = "gloo" if "RANK" in os.environ else None
    arguments = TrainingArguments(
        output_dir=str(folder), use_cpu=True, ddp_backend=backend, report_to=[], max_steps=steps,
        per_device_train_batch_size=2, gradient_accumulation_steps=2, logging_steps=2,
        save_strategy="steps", save_steps=4, save_total_limit=2, disable_tqdm=True, seed=1,
    )  # fmt: skip
    set_seed(1)
    shape = GPT2Config(vocab_size=VOCABULARY, n_positions=LENGTH, n_embd=8, n_layer=1, n_head=1)
    flash = FlashCheckpointCallback()
    trainer = Trainer(
        model=GPT2LMHeadModel(shape), args=arguments, train_dataset=Texts(),
        callbacks=[*([flash] if keeps else []), Deeds(name, kill)],
    )  # fmt: skip
    trainer.train(resume_from_checkpoint=flash.newest(trainer) if keeps else None)
    return trainer


def main() -> None:
    """The job."""
    folder, steps, kill = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
    torch.set_num_threads(1)
    train(folder / "kept", steps, f"attempt-{attempt}", kill if attempt == "0" else -1)
    train(folder / "bare", steps, "undisturbed", keeps=False)
    end_rank()


if __name__ == "__main__":
    main()
