"""Which tokens make sample i: Megatron's document, sample and shuffle indices, to the last bit.

A dataset is `epochs` passes over the sequences of a split, in random order, end to end. Sample k
starts at token k x S of that stream and takes S + 1 tokens, so that neighbours share one. Pure
arithmetic on lengths: no files, no tokens.
"""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from relkit.errors import BadInputFile, UsageProblem

SPLITS = ("train", "valid", "test")
# Below this share of an epoch, the last pass is shuffled by itself, so that its few samples do not
# come early and others not at all.
_SEPARATE_BELOW = 0.80
_CHUNK = 1 << 20

IntArray = npt.NDArray[np.signedinteger[Any]]


@dataclass(frozen=True, slots=True)
class SampleIndex:
    """The order of a split's samples.

    Args:
        documents: int32, sequence numbers, `epochs` times each, in the order of the stream.
        samples: (n + 1) x 2, int32 or int64; row k is where sample k starts: position in
            `documents`, and tokens into that sequence. Sample k ends at row k + 1, inclusive.
        shuffle: uint32 or int64, n entries: the i-th sample that is drawn is sample shuffle[i].
    """

    documents: IntArray
    samples: IntArray
    shuffle: npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Plan:
    """How many passes a number of samples needs.

    Args:
        epochs: passes over the split.
        samples: full samples that these passes hold.
        before_final: samples that begin before the last pass, where that is shuffled by itself;
            else all.
    """

    epochs: int
    samples: int
    before_final: int

    @property
    def separate(self) -> bool:
        """Whether the last pass is shuffled by itself."""
        return self.before_final != self.samples


def parse_split(split: str) -> tuple[float, float, float]:
    """The shares of train, validation and test of "949,50,1"; they add up to 1.

    Raises:
        UsageProblem: not one to three weights of at least 0, one of them above 0.
    """
    words = [word for word in re.split(r"[,/\s]+", split.strip()) if word]
    try:
        weights = [float(word) for word in words]
    except ValueError:
        weights = []
    usable = all(math.isfinite(weight) and weight >= 0 for weight in weights)
    if not 1 <= len(weights) <= 3 or not usable or sum(weights) <= 0:
        raise UsageProblem(
            f"dataset_config.split is {split!r}; it must be one to three weights, such as 949,50,1"
        )
    weights += [0.0] * (3 - len(weights))
    total = sum(weights)
    return weights[0] / total, weights[1] / total, weights[2] / total


def split_bounds(split: str, sequences: int) -> tuple[tuple[int, int], ...]:
    """First sequence, and the one after the last, of train, validation and test."""
    reached, edges = 0.0, [0]
    for share in parse_split(split):
        reached += share
        edges.append(round(reached * float(sequences)))
    return tuple(itertools.pairwise(edges))


def wanted_samples(
    *, training_iters: int, eval_interval: int | None, eval_iters: int, global_batch_size: int
) -> tuple[int, int, int]:
    """Samples that a run draws from train, validation and test."""
    evaluations = 0 if eval_interval is None else training_iters // eval_interval + 1
    return (
        training_iters * global_batch_size,
        evaluations * eval_iters * global_batch_size,
        eval_iters * global_batch_size,
    )


def plan(tokens_per_epoch: int, num_samples: int, seq_length: int) -> Plan:
    """The fewest passes that hold `num_samples` samples of `seq_length` + 1 tokens.

    Raises:
        BadInputFile: there are no tokens to pass over.
    """
    if tokens_per_epoch <= 0:
        raise BadInputFile("there is not one token in it")
    epochs = max(1, -(-(num_samples * seq_length + 1) // tokens_per_epoch))
    samples = (epochs * tokens_per_epoch - 1) // seq_length
    if epochs == 1:
        return Plan(1, samples, samples)
    before_final = ((epochs - 1) * tokens_per_epoch - 1) // seq_length
    one_epoch = (tokens_per_epoch - 1) // seq_length
    if num_samples - before_final < int(_SEPARATE_BELOW * one_epoch):
        return Plan(epochs, samples, before_final)
    return Plan(epochs, samples, samples)


def build(
    lengths: npt.NDArray[Any],
    first: int,
    end: int,
    *,
    num_samples: int,
    seq_length: int,
    seed: int,
    shuffled: bool = True,
) -> SampleIndex:
    """The three indices over sequences [first, end).

    Args:
        lengths: tokens of every sequence of the file.
        first, end: the split, from split_bounds.
        num_samples: that will be drawn, at least.
        seq_length: tokens of a sample, without the one that is label only.
        seed: of NumPy's RandomState, as Megatron uses it.
        shuffled: False keeps the order of the file in every pass.

    Raises:
        BadInputFile: there are no tokens in the split.
    """
    passes = plan(int(lengths[first:end].sum(dtype=np.int64)), num_samples, seq_length)
    random = np.random.RandomState(seed)
    documents = np.tile(np.arange(first, end, dtype=np.int32), passes.epochs)
    if shuffled:
        # One generator for all, in this order: that is what makes the bits equal.
        last_pass = len(documents) - (end - first) if passes.separate else len(documents)
        random.shuffle(documents[:last_pass])
        random.shuffle(documents[last_pass:])
    samples = _starts(lengths, documents, passes.samples, seq_length)
    narrow = passes.samples < np.iinfo(np.uint32).max - 1
    shuffle = np.arange(passes.samples, dtype=np.uint32 if narrow else np.int64)
    if shuffled:
        random.shuffle(shuffle[: passes.before_final])
        random.shuffle(shuffle[passes.before_final :])
    return SampleIndex(documents, samples, shuffle)


def _starts(lengths: npt.NDArray[Any], documents: IntArray, count: int, step: int) -> IntArray:
    """Row k: the sequence that holds token k x `step` of the stream, and the offset in it."""
    ends = np.cumsum(lengths[documents], dtype=np.int64)
    largest = max(len(documents), int(lengths[documents].max(initial=0)))
    dtype = np.int32 if largest <= np.iinfo(np.int32).max else np.int64
    rows = np.empty((count + 1, 2), dtype=dtype)
    for begin in range(0, count + 1, _CHUNK):  # so that the int64 queries stay small
        part = rows[begin : begin + _CHUNK]
        tokens = np.arange(begin, begin + len(part), dtype=np.int64) * step
        # Sequences that end at or before the token are behind it; empty ones never hold it.
        part[:, 0] = np.searchsorted(ends, tokens, side="right")
        before = part[:, 0] - 1
        part[:, 1] = tokens - np.where(before >= 0, ends[before], 0)
    rows[0] = 0  # Megatron starts at the first sequence even where that is empty
    return rows
