"""The sample index against values of Megatron's own functions, and against its compiled helper."""

from __future__ import annotations

import importlib.util
import warnings
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relkit.errors import BadInputFile, UsageProblem
from relkit.trainer.data.sample_index import (
    Plan,
    SampleIndex,
    build,
    parse_split,
    plan,
    split_bounds,
    wanted_samples,
)

LENGTHS = np.array([5, 7, 3, 9, 4], dtype=np.int32)
EMPTY_SPLITS = ["", "abc", "-1,2", "0,0,0", "1,2,3,4", "nan,1", "inf"]


def of_five(num_samples: int, shuffled: bool = True) -> SampleIndex:
    return build(LENGTHS, 0, 5, num_samples=num_samples, seq_length=4, seed=1234, shuffled=shuffled)


def test_one_epoch_equals_megatrons() -> None:
    index = of_five(6)
    assert index.documents.tolist() == [4, 0, 1, 2, 3]
    rows = [[0, 0], [1, 0], [1, 4], [2, 3], [3, 0], [4, 1], [4, 5]]
    assert index.samples.tolist() == rows
    assert index.shuffle.tolist() == [5, 2, 3, 1, 0, 4]
    dtypes = [part.dtype.name for part in (index.documents, index.samples, index.shuffle)]
    assert dtypes == ["int32", "int32", "uint32"]


def test_a_short_last_epoch_is_shuffled_by_itself_as_megatron_does() -> None:
    index = of_five(8)
    assert index.documents.tolist() == [4, 0, 1, 2, 3, 3, 2, 1, 0, 4]
    rows = [[0, 0], [1, 0], [1, 4], [2, 3], [3, 0], [4, 1], [4, 5], [5, 0], [5, 4], [5, 8]]
    rows += [[7, 0], [7, 4], [8, 1], [9, 0]]
    assert index.samples.tolist() == rows
    assert index.shuffle.tolist() == [0, 4, 3, 2, 5, 1, 7, 6, 9, 8, 11, 10, 12]


@pytest.mark.parametrize(
    ("num_samples", "epochs", "before_final", "samples"),
    [
        # Of one pass there is no last one.
        (100, 1, 100, 100),
        # 79 of the 100 samples of the last pass are wanted: it is shuffled by itself.
        (101, 2, 100, 200),
        (179, 2, 100, 200),
        # 80 of 100 are no longer few.
        (180, 2, 200, 200),
        (200, 2, 200, 200),
        (201, 3, 200, 300),
        (279, 3, 200, 300),
        (280, 3, 300, 300),
    ],
)
def test_the_last_pass_is_shuffled_by_itself_where_less_than_80_percent_of_it_are_wanted(
    num_samples: int, epochs: int, before_final: int, samples: int
) -> None:
    """As GPTDataset of Megatron decides it; 1,001 tokens hold 100 samples of 10 and one more."""
    planned = plan(1001, num_samples, 10)
    assert planned == Plan(epochs, samples, before_final)
    assert planned.separate == (before_final < samples)
    index = build(np.array([1001], np.int32), 0, 1, num_samples=num_samples, seq_length=10, seed=1)
    assert sorted(index.shuffle[:before_final].tolist()) == list(range(before_final))
    assert sorted(index.shuffle.tolist()) == list(range(samples))
    assert index.shuffle.tolist() != list(range(samples))


def test_three_epochs_equal_megatrons() -> None:
    index = of_five(15)
    assert index.documents.tolist() == [2, 2, 4, 1, 0, 3, 4, 0, 1, 3, 0, 4, 3, 2, 1]
    order = [7, 11, 2, 3, 1, 9, 5, 4, 0, 8, 6, 10, 12, 19, 17, 14, 18, 16, 13, 15]
    assert index.shuffle.tolist() == order


def test_without_shuffling_the_order_is_that_of_the_file() -> None:
    index = of_five(8, shuffled=False)
    assert index.documents.tolist() == [0, 1, 2, 3, 4] * 2
    assert index.shuffle.tolist() == list(range(13))


def megatrons_helper() -> ModuleType:
    """The compiled helper by itself: its package would import far more than this needs."""
    found = importlib.util.find_spec("megatron")
    assert found is not None
    assert found.submodule_search_locations is not None
    folder = Path(next(iter(found.submodule_search_locations))) / "core" / "datasets"
    path = next(folder.glob("helpers_cpp*.so"))
    spec = importlib.util.spec_from_file_location("helpers_cpp", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        spec.loader.exec_module(module)
    return module


HELPER = megatrons_helper()


@settings(max_examples=200, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 20), min_size=1, max_size=30).filter(lambda n: sum(n) > 0),
    num_samples=st.integers(1, 60),
    seq_length=st.integers(1, 25),
    seed=st.integers(0, 2**32 - 1),
)
def test_every_row_equals_the_compiled_helpers(
    lengths: list[int], num_samples: int, seq_length: int, seed: int
) -> None:
    sizes = np.array(lengths, dtype=np.int32)
    passes = plan(int(sizes.sum()), num_samples, seq_length)
    index = build(sizes, 0, len(sizes), num_samples=num_samples, seq_length=seq_length, seed=seed)
    theirs = HELPER.build_sample_idx_int32(
        sizes, index.documents, seq_length, passes.epochs, int(sizes.sum()), True, 1
    )
    assert index.samples.tolist() == np.asarray(theirs).reshape(-1, 2).tolist()
    assert sorted(index.shuffle.tolist()) == list(range(len(index.samples) - 1))
    assert len(index.shuffle) >= num_samples


def test_many_short_sequences_cross_the_chunks() -> None:
    sizes = np.full(2_300_000, 1, dtype=np.int32)
    index = build(sizes, 0, len(sizes), num_samples=1, seq_length=1, seed=1, shuffled=False)
    assert index.samples[:, 0].tolist() == list(range(2_300_000))
    assert not index.samples[:, 1].any()


def test_a_split_is_taken_of_the_sequences() -> None:
    assert split_bounds("949,50,1", 1000) == ((0, 949), (949, 999), (999, 1000))
    assert split_bounds("1", 7) == ((0, 7), (7, 7), (7, 7))
    assert split_bounds("90, 10", 10) == ((0, 9), (9, 10), (10, 10))
    assert sum(parse_split("969,30,1")) == pytest.approx(1)


@pytest.mark.parametrize("split", EMPTY_SPLITS)
def test_a_split_that_is_none_is_named(split: str) -> None:
    with pytest.raises(UsageProblem, match=r"dataset_config\.split"):
        parse_split(split)


def test_samples_of_a_run_are_counted_as_megatron_counts() -> None:
    wanted = wanted_samples(training_iters=100, eval_interval=30, eval_iters=5, global_batch_size=8)
    assert wanted == (800, 160, 40)
    none = wanted_samples(training_iters=10, eval_interval=None, eval_iters=5, global_batch_size=2)
    assert none == (20, 0, 10)


def test_a_split_without_tokens_is_an_error() -> None:
    with pytest.raises(BadInputFile, match="not one token"):
        build(LENGTHS, 2, 2, num_samples=3, seq_length=4, seed=1)
