"""Samples and micro-batches: what Megatron's GPTDataset and sampler give, and named errors."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from relkit.data.indexed import IndexedDataset, IndexedWriter
from relkit.errors import BadInputFile, UnwritablePath, UsageProblem
from relkit.trainer.config.config import DatasetConfig, ModelConfig, TrainerConfig, TrainingConfig
from relkit.trainer.data import sample_cache
from relkit.trainer.data.sample_index import SampleIndex, build
from relkit.trainer.data.samples import (
    GPTDataset,
    MicroBatch,
    batches,
    build_datasets,
    global_batch_size,
)

SEQ = 8
VOCAB = 100


def write_pair(prefix: Path, sequences: list[list[int]]) -> Path:
    with IndexedWriter(prefix, np.dtype("<u2")) as writer:
        for sequence in sequences:
            writer.add_document(sequence)
    return prefix


@pytest.fixture
def pair(tmp_path: Path) -> Path:
    draw = random.Random(7)  # noqa: S311
    lengths = [draw.randrange(1, 30) for _ in range(60)]
    tokens = [[draw.randrange(VOCAB) for _ in range(length)] for length in lengths]
    return write_pair(tmp_path / "text_document", tokens)


def config_of(pair: Path, *, iters: int = 10, eval_interval: int | None = None) -> TrainerConfig:
    return TrainerConfig(
        training=TrainingConfig(training_iters=iters, eval_interval=eval_interval, eval_iters=2),
        model=ModelConfig(
            num_layers=1, hidden_size=8, num_attention_heads=1, vocab_size=VOCAB, seq_length=SEQ
        ),
        dataset=DatasetConfig(
            data_path=str(pair), micro_batch_size=2, global_batch_size=8, split="90,10,0"
        ),
    )


def with_data(config: TrainerConfig, **changes: object) -> TrainerConfig:
    return replace(config, dataset=replace(config.dataset, **changes))  # type: ignore[arg-type]


def all_batches(dataset: GPTDataset, rank: int, size: int, begin: int = 0) -> list[MicroBatch]:
    steps = batches(
        dataset,
        dp_rank=rank,
        dp_size=size,
        micro_batch_size=2,
        global_batch_size=8,
        consumed_samples=begin,
    )
    return [batch for step in steps for batch in step]


def test_a_sample_is_the_tokens_of_the_stream_from_its_row_on(pair: Path) -> None:
    source = IndexedDataset(pair)
    index = build(source.lengths, 0, 60, num_samples=200, seq_length=SEQ, seed=3)
    dataset = GPTDataset(source, index, seq_length=SEQ, vocab_size=VOCAB)
    stream = np.concatenate([source[number] for number in index.documents.tolist()])
    for number, row in enumerate(index.shuffle.tolist()):
        expected = stream[row * SEQ : row * SEQ + SEQ + 1]
        assert dataset[number].tolist() == expected.tolist()
    assert len(dataset) >= 200


def test_labels_are_the_tokens_that_follow(pair: Path) -> None:
    datasets = build_datasets(config_of(pair), data_parallel_size=1)
    batch = all_batches(datasets.train, 0, 1)[0]
    assert batch.tokens.shape == batch.labels.shape == batch.loss_mask.shape == (2, SEQ)
    assert (batch.tokens.dtype, batch.loss_mask.dtype) == (torch.int64, torch.float32)
    assert batch.tokens[0].tolist() == datasets.train[0][:-1].tolist()
    assert batch.labels[1].tolist() == datasets.train[1][1:].tolist()
    assert batch.loss_mask.min() == 1
    assert datasets.valid is None
    assert datasets.test is None


def test_ranks_share_each_step_out_as_megatrons_sampler_does(pair: Path) -> None:
    train = build_datasets(config_of(pair), data_parallel_size=2).train
    alone = all_batches(train, 0, 1)
    first, second = all_batches(train, 0, 2), all_batches(train, 1, 2)
    dealt = [batch for both in zip(first, second, strict=True) for batch in both]
    assert len(dealt) == len(alone) >= 40
    assert all(torch.equal(a.tokens, b.tokens) for a, b in zip(dealt, alone, strict=True))


def test_a_position_is_the_number_of_samples_consumed(pair: Path) -> None:
    train = build_datasets(config_of(pair), data_parallel_size=1).train
    whole, rest = all_batches(train, 0, 1), all_batches(train, 0, 1, begin=24)
    assert len(whole) - len(rest) == 24 // 2
    assert all(torch.equal(a.labels, b.labels) for a, b in zip(whole[12:], rest, strict=True))


def test_what_follows_the_end_of_a_document_can_be_masked(tmp_path: Path) -> None:
    pair = write_pair(tmp_path / "d", [[1, 2, 3, 0]] * 40)
    config = with_data(config_of(pair), eod_mask_loss=True, eod_token=0)
    batch = all_batches(build_datasets(config, data_parallel_size=1).train, 0, 1)[0]
    assert torch.equal(batch.loss_mask == 0, batch.tokens == 0)
    with pytest.raises(UsageProblem, match="eod_token"):
        build_datasets(with_data(config, eod_token=None), data_parallel_size=1)


def test_a_token_above_the_vocabulary_is_named(tmp_path: Path) -> None:
    pair = write_pair(tmp_path / "d", [[1, 2, 3, VOCAB]] * 40)
    train = build_datasets(config_of(pair), data_parallel_size=1).train
    with pytest.raises(BadInputFile, match=r"holds token 100 .* vocabulary has 100"):
        train[0]


def test_an_empty_split_is_named_where_it_is_read(pair: Path, tmp_path: Path) -> None:
    config = with_data(config_of(pair, eval_interval=5), split="100,0,0")
    with pytest.raises(BadInputFile, match=r"valid split .* is empty: split '100,0,0'"):
        build_datasets(config, data_parallel_size=1)
    never = with_data(config_of(pair), split="100,0,0")
    assert build_datasets(never, data_parallel_size=1).valid is None
    hollow = write_pair(tmp_path / "hollow", [[], []])
    with pytest.raises(BadInputFile, match=r"train split .* 0 of 0 sequences"):
        build_datasets(config_of(hollow), data_parallel_size=1)
    with IndexedWriter(hollow, np.dtype("<u2")) as writer:
        writer.add_sequence([])
        writer.end_document()
    with pytest.raises(BadInputFile, match=r"train split .* without a token"):
        build_datasets(config_of(hollow), data_parallel_size=1)


def test_evaluation_reads_splits_of_its_own(pair: Path) -> None:
    config = with_data(config_of(pair, eval_interval=5), split="80,10,10")
    datasets = build_datasets(config, data_parallel_size=1)
    assert datasets.valid is not None
    assert datasets.test is not None
    assert set(datasets.train.index.documents.tolist()) == set(range(48))
    assert set(datasets.valid.index.documents.tolist()) == set(range(48, 54))
    assert set(datasets.test.index.documents.tolist()) == set(range(54, 60))
    assert len(datasets.valid) >= 3 * 2 * 8


def test_batch_sizes_that_do_not_divide_are_named() -> None:
    assert global_batch_size(DatasetConfig(micro_batch_size=2, micro_batch_num=3), 4) == 24
    assert global_batch_size(DatasetConfig(micro_batch_size=2), 4) == 8
    assert global_batch_size(DatasetConfig(micro_batch_size=2, global_batch_size=16), 4) == 16
    with pytest.raises(UsageProblem, match="global_batch_size 12 is not a multiple of"):
        global_batch_size(DatasetConfig(micro_batch_size=2, global_batch_size=12), 4)


def test_no_data_at_all_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageProblem, match="no training data"):
        build_datasets(with_data(config_of(tmp_path), data_path=""), data_parallel_size=1)
    with pytest.raises(BadInputFile, match="cannot read"):
        build_datasets(config_of(tmp_path / "nowhere"), data_parallel_size=1)


def cached(pair: Path) -> list[Path]:
    return sorted(sample_cache.default_folder(str(pair)).glob("*"))


def test_the_index_is_built_once_and_mapped_afterwards(
    pair: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = build_datasets(config_of(pair), data_parallel_size=1).train
    endings = {path.name.split("-GPTDataset-train")[1] for path in cached(pair)}
    assert {"-document_index.npy", "-sample_index.npy", "-shuffle_index.npy"} < endings
    assert "-description.txt" in endings

    def never(*_: object) -> None:
        raise AssertionError("built again")

    monkeypatch.setattr(sample_cache, "_store", never)
    again = build_datasets(config_of(pair), data_parallel_size=1).train
    assert all(first[number].tolist() == again[number].tolist() for number in range(len(first)))
    assert not again.index.samples.flags.owndata


@pytest.mark.parametrize("how", ["cut", "foreign", "no shuffle", "other text"])
def test_a_damaged_cache_is_built_again(pair: Path, how: str) -> None:
    first = build_datasets(config_of(pair), data_parallel_size=1).train
    expected = [first[number].tolist() for number in range(len(first))]
    del first
    by_name = {path.name.split("-GPTDataset-train-")[-1]: path for path in cached(pair)}
    if how == "cut":
        path = by_name["sample_index.npy"]
        path.write_bytes(path.read_bytes()[:-9])
    elif how == "foreign":
        by_name["document_index.npy"].write_bytes(b"\x80\x04N.")
    elif how == "no shuffle":
        by_name["shuffle_index.npy"].unlink()
    else:
        by_name["description.txt"].write_text("something else")
    again = build_datasets(config_of(pair), data_parallel_size=1).train
    assert [again[number].tolist() for number in range(len(again))] == expected


def test_data_written_anew_is_indexed_anew(tmp_path: Path) -> None:
    pair = write_pair(tmp_path / "d", [[1] * 20] * 20)
    assert build_datasets(config_of(pair), data_parallel_size=1).train[0].tolist() == [1] * 9
    write_pair(tmp_path / "d", [[2] * 30] * 20)
    assert build_datasets(config_of(pair), data_parallel_size=1).train[0].tolist() == [2] * 9


def test_without_a_writable_place_the_index_stays_in_memory_unless_one_was_named(
    pair: Path, tmp_path: Path
) -> None:
    # A file where the folder would have to be: that stops root too.
    Path(pair).write_text("in the way")
    train = build_datasets(config_of(pair), data_parallel_size=1).train
    assert train.index.samples.flags.owndata
    blocked = tmp_path / "blocked"
    blocked.write_text("in the way")
    config = with_data(config_of(pair), data_cache_path=str(blocked / "cache"))
    with pytest.raises(UnwritablePath, match="cannot cache the sample index"):
        build_datasets(config, data_parallel_size=1)


def test_ranks_that_start_together_build_one_index(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    together = threading.Barrier(4, timeout=10)
    built: list[int] = []

    def build_and_count() -> SampleIndex:
        built.append(1)
        lengths = np.full(10_000, 3, dtype=np.int32)
        return build(lengths, 0, 10_000, num_samples=500, seq_length=4, seed=1)

    def rank() -> int:
        together.wait()
        found = sample_cache.load_or_build(folder, "train", "d", build_and_count, required=True)
        return len(found.shuffle)

    # Locks belong to open files: threads that open it stand for processes.
    with ThreadPoolExecutor(4) as ranks:
        lengths = [future.result(timeout=20) for future in [ranks.submit(rank) for _ in range(4)]]
    assert built == [1]
    assert len(set(lengths)) == 1
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]
