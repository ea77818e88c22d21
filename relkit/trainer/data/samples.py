"""Samples of S + 1 tokens from a .bin/.idx pair, and the micro-batches of a data-parallel rank.

The order of the samples depends on the data, the split, the seed and the number of samples that the
whole run draws, and on nothing else: a position in it is one number, the samples consumed so far.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from relkit.data.indexed import IndexedDataset
from relkit.errors import BadInputFile, UsageProblem
from relkit.trainer.config.config import DatasetConfig, TrainerConfig
from relkit.trainer.data import sample_index
from relkit.trainer.data.sample_cache import default_folder, describe, load_or_build
from relkit.trainer.data.sample_index import SPLITS, SampleIndex


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """What one forward pass takes.

    Args:
        tokens: int64 [B, S].
        labels: int64 [B, S]; the token that follows each one.
        loss_mask: float32 [B, S]; 0 where the loss leaves a label out.
    """

    tokens: torch.Tensor
    labels: torch.Tensor
    loss_mask: torch.Tensor


@dataclass(frozen=True, slots=True)
class Datasets:
    """The splits that the run reads; None for one that it does not."""

    train: GPTDataset
    valid: GPTDataset | None
    test: GPTDataset | None


class GPTDataset:
    """Samples of one split in the order in which they are drawn.

    Args:
        source: the tokens.
        index: which of them make a sample.
        seq_length: tokens of a sample, S; one more is read, for the last label.
        vocab_size: tokens of the tokenizer; ids at or above it are refused.
        mask_token: the loss leaves out what follows this token; None: nothing.
    """

    def __init__(
        self,
        source: IndexedDataset,
        index: SampleIndex,
        *,
        seq_length: int,
        vocab_size: int,
        mask_token: int | None = None,
    ) -> None:
        self.source = source
        self.index = index
        self.seq_length = seq_length
        self.vocab_size = vocab_size
        self.mask_token = mask_token

    def __len__(self) -> int:
        return len(self.index.shuffle)

    def __getitem__(self, number: int) -> npt.NDArray[np.int64]:
        """The S + 1 tokens of the sample that is drawn as the `number`-th."""
        sample = np.empty(self.seq_length + 1, dtype=np.int64)
        self.read(number, sample)
        return sample

    def read(self, number: int, into: npt.NDArray[np.int64]) -> None:
        """Write the tokens of a sample into an array of S + 1.

        Raises:
            BadInputFile: one of them is outside the vocabulary.
        """
        row = int(self.index.shuffle[number])
        first, offset = self.index.samples[row].tolist()
        last, last_offset = self.index.samples[row + 1].tolist()
        filled = 0
        for position in range(first, last + 1):
            end = last_offset + 1 if position == last else None
            length = None if end is None else end - offset
            part = self.source.get(int(self.index.documents[position]), offset, length)
            into[filled : filled + len(part)] = part
            filled += len(part)
            offset = 0
        if into.max() >= self.vocab_size or into.min() < 0:
            self._refuse(into, first)

    def _refuse(self, tokens: npt.NDArray[np.int64], position: int) -> None:
        wrong = tokens[(tokens < 0) | (tokens >= self.vocab_size)]
        raise BadInputFile(
            f"{self.source.prefix}.bin holds token {wrong[0]} (in or behind sequence"
            f" {self.index.documents[position]}), and the vocabulary has {self.vocab_size}",
            next_step="Set vocab_size (or --vocab-file) to that of the tokenizer that wrote it.",
        )


def global_batch_size(dataset: DatasetConfig, data_parallel_size: int) -> int:
    """Samples of one step over all ranks.

    Raises:
        UsageProblem: it is not a multiple of what the ranks take at a time.
    """
    at_a_time = dataset.micro_batch_size * data_parallel_size
    if dataset.global_batch_size is None:
        return at_a_time * (dataset.micro_batch_num or 1)
    if dataset.global_batch_size % at_a_time:
        raise UsageProblem(
            f"dataset_config.global_batch_size {dataset.global_batch_size} is not a multiple of"
            f" micro_batch_size {dataset.micro_batch_size} x {data_parallel_size} data-parallel"
            " ranks"
        )
    return dataset.global_batch_size


def build_datasets(config: TrainerConfig, *, data_parallel_size: int) -> Datasets:
    """Open the data and index the splits that the run reads.

    Raises:
        BadInputFile: the pair is damaged, holds no integers, or a split that is needed is empty.
        UsageProblem: no data is named, or the split is none.
        UnwritablePath: `data_cache_path` cannot be written.
    """
    training, dataset = config.training, config.dataset
    if not dataset.data_path:
        raise UsageProblem(
            "no training data is named",
            next_step="Name the prefix of a .bin/.idx pair with --data-path.",
        )
    if dataset.eod_mask_loss and dataset.eod_token is None:
        raise UsageProblem("dataset_config.eod_mask_loss needs dataset_config.eod_token")
    source = IndexedDataset(dataset.data_path)
    if source.dtype.kind not in "iu":
        raise BadInputFile(f"{dataset.data_path}.bin holds {source.dtype} numbers, not tokens")
    wanted = sample_index.wanted_samples(
        training_iters=training.training_iters,
        eval_interval=training.eval_interval,
        eval_iters=training.eval_iters,
        global_batch_size=global_batch_size(dataset, data_parallel_size),
    )
    bounds = sample_index.split_bounds(dataset.split, len(source))
    splits: list[GPTDataset | None] = []
    for name, (first, end), samples in zip(SPLITS, bounds, wanted, strict=True):
        evaluated = training.eval_interval is not None and training.eval_iters > 0
        # A run ends with the test split where there is one; nobody asked for it by name.
        if (name != "train" and not evaluated) or (name == "test" and first == end):
            splits.append(None)
            continue
        splits.append(_split(config, source, name, first, end, samples))
    train, valid, test = splits
    assert train is not None
    return Datasets(train, valid, test)


def _split(
    config: TrainerConfig, source: IndexedDataset, name: str, first: int, end: int, samples: int
) -> GPTDataset:
    dataset, seq_length = config.dataset, config.model.seq_length
    if not source.lengths[first:end].any():
        raise BadInputFile(
            f"the {name} split of {source.prefix} is empty: split {dataset.split!r} gives it"
            f" {end - first} of {len(source)} sequences{', without a token' * (end > first)}",
            next_step="Give it a larger share, or leave out what reads it (eval_interval).",
        )

    def build() -> SampleIndex:
        return sample_index.build(
            source.lengths,
            first,
            end,
            num_samples=samples,
            seq_length=seq_length,
            seed=config.training.seed,
            shuffled=dataset.shuffle,
        )

    description = describe(
        Path(f"{source.prefix}.idx"),
        split=name,
        sequences=(first, end),
        num_samples=samples,
        seq_length=seq_length,
        seed=config.training.seed,
        shuffled=dataset.shuffle,
    )
    named = bool(dataset.data_cache_path)
    folder = Path(dataset.data_cache_path) if named else default_folder(source.prefix)
    return GPTDataset(
        source,
        load_or_build(folder, name, description, build, required=named),
        seq_length=seq_length,
        vocab_size=config.model.vocab_size,
        mask_token=dataset.eod_token if dataset.eod_mask_loss else None,
    )


def batches(
    dataset: GPTDataset,
    *,
    dp_rank: int,
    dp_size: int,
    micro_batch_size: int,
    global_batch_size: int,
    consumed_samples: int = 0,
) -> Iterator[list[MicroBatch]]:
    """The micro-batches of one data-parallel rank, a list for each step.

    Samples are dealt as Megatron does: of every dp_size x micro_batch_size samples in a row, each
    rank takes micro_batch_size neighbours. Ends where less than a whole step is left.

    Args:
        dp_rank, dp_size: this rank among those that see other samples.
        micro_batch_size, global_batch_size: in samples.
        consumed_samples: of all ranks, before the first step.
    """
    at_a_time = micro_batch_size * dp_size
    begin = consumed_samples
    while begin + global_batch_size <= len(dataset):
        starts = range(begin, begin + global_batch_size, at_a_time)
        mine = [start + dp_rank * micro_batch_size for start in starts]
        yield [micro_batch(dataset, start, micro_batch_size) for start in mine]
        begin += global_batch_size


def micro_batch(dataset: GPTDataset, first: int, count: int) -> MicroBatch:
    """Samples [first, first + count) in the order of drawing, as tensors in main memory."""
    samples = np.empty((count, dataset.seq_length + 1), dtype=np.int64)
    for row in range(count):
        dataset.read(first + row, samples[row])
    tokens: npt.NDArray[Any] = np.ascontiguousarray(samples[:, :-1])
    mask = np.ones(tokens.shape, dtype=np.float32)
    if dataset.mask_token is not None:
        mask[tokens == dataset.mask_token] = 0
    labels = np.ascontiguousarray(samples[:, 1:])
    return MicroBatch(torch.from_numpy(tokens), torch.from_numpy(labels), torch.from_numpy(mask))
