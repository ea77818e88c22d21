"""Hugging Face's Trainer on a small GPT-2 of random weights, data-parallel on CPU.

`pip install transformers accelerate`. One rank may get more sequences a step than the others.
"""

from __future__ import annotations

import tempfile

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

from benchmarks.jobs.trainer_options import parse

_LENGTH, _VOCABULARY, _BATCH = 32, 256, 10


class _Texts(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> torch.Tensor:
        chance = torch.Generator().manual_seed(index)
        return torch.randint(_VOCABULARY, (_LENGTH,), generator=chance)


def main() -> None:
    """Run the job."""
    options = parse(__doc__ or "", _BATCH)
    torch.set_num_threads(1)
    extra = options.sequences - _BATCH

    def collate(texts: list[torch.Tensor]) -> dict[str, torch.Tensor]:
        tokens = torch.stack([*texts, *texts[:extra]])
        return {"input_ids": tokens, "labels": tokens}

    shape = GPT2Config(vocab_size=_VOCABULARY, n_positions=_LENGTH, n_embd=64, n_layer=2, n_head=2)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder, use_cpu=True, ddp_backend="gloo", report_to=[],
            max_steps=options.steps, per_device_train_batch_size=_BATCH,
            logging_steps=50, save_strategy="no", disable_tqdm=True, seed=1,
        )  # fmt: skip
        Trainer(
            model=GPT2LMHeadModel(shape), args=arguments, train_dataset=_Texts(),
            data_collator=collate,
        ).train()  # fmt: skip


if __name__ == "__main__":
    main()
