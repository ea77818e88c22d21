"""A collective of the model itself goes wrong on one rank: who did it, and what it did."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from relkit.data.indexed_writer import IndexedWriter
from tests.cluster.conftest import ENDLESS, EXAMPLE, Start, report_of

pytestmark = pytest.mark.job
SKIPPED, OTHER_CALL = "RK-HANG-006", "RK-HANG-005"
TRAINER = EXAMPLE.with_name("pretrain_gpt.py")
TENSOR_PARALLEL = Path(__file__).parents[1] / "jobs" / "tensor_parallel_job.py"
GPT = (
    "--num-layers", "2", "--hidden-size", "32", "--num-attention-heads", "4",
    "--seq-length", "32", "--max-position-embeddings", "32", "--vocab-size", "128",
    "--micro-batch-size", "1", "--global-batch-size", "12", "--lr", "0.001",
    "--train-iters", "100000", "--transformer-impl", "local", "--distributed-backend", "gloo",
)  # fmt: skip


@pytest.fixture
def flags(tmp_path: Path) -> list[str]:
    """The trainer's command line, with data to learn from."""
    prefix = tmp_path / "numbers"
    with IndexedWriter(prefix, np.uint16) as writer:
        for length in range(500, 600):
            writer.add_document(np.arange(length, dtype=np.uint16) % 128)
    return [*GPT, "--data-path", str(prefix), "--output-dir", str(tmp_path / "output")]


def verdict(start: Start, folder: Path, processes: int, *line: str | Path) -> tuple[int, str, str]:
    """The rank named first, the finding that names it and its words, of a job that hangs."""
    done = start(
        "launch", "--nproc-per-node", str(processes), "--hang-timeout", "5", "--on-hang", "abort",
        "--timeline-path", folder / "timeline", *line,
    ).wait(80)  # fmt: skip
    assert done.code == 1, done.err
    report = report_of(folder / "timeline")
    worst = report["findings"][0]
    assert worst["status"] == "fail", done.err
    assert worst["ranks"] == str(report["culprits"][0])
    return report["culprits"][0], worst["id"], worst["title"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("fault", "rank", "finding", "words"),
    [
        ("skip", 1, SKIPPED, "skipped all_reduce #9 of the default group"),
        ("mismatch", 0, OTHER_CALL, "called all_gather as #9 of the default group"),
        ("mismatch:kind=size", 2, OTHER_CALL, "all_reduce of 16 KiB as #9 of the default group"),
    ],
)
def test_the_gradients_of_ddp(
    start: Start, tmp_path: Path, fault: str, rank: int, finding: str, words: str
) -> None:
    inject = f"{fault}:rank={rank}:step=4:at=gradients"
    named, seen, title = verdict(start, tmp_path, 3, "--inject", inject, EXAMPLE, *ENDLESS)
    assert (named, seen) == (rank, finding), title
    assert words in title


@pytest.mark.long
@pytest.mark.parametrize(
    ("fault", "rank", "finding", "words"),
    [
        ("skip", 2, SKIPPED, "skipped all_reduce"),
        ("mismatch", 1, OTHER_CALL, "called all_gather"),
    ],
)
def test_the_gradients_of_the_trainer(
    start: Start, tmp_path: Path, flags: list[str], fault: str, rank: int, finding: str, words: str
) -> None:
    inject = f"{fault}:rank={rank}:step=4:at=gradients"
    named, seen, title = verdict(start, tmp_path, 3, "--inject", inject, TRAINER, *flags)
    assert (named, seen) == (rank, finding), title
    assert words in title


@pytest.mark.long
@pytest.mark.parametrize(
    ("fault", "finding", "words"),
    [
        ("skip", SKIPPED, "skipped all_reduce"),
        ("op", OTHER_CALL, "called all_gather as"),
        ("size", OTHER_CALL, "called all_reduce of 256 B as"),
    ],
)
def test_a_sum_of_a_tensor_parallel_layer(
    start: Start, tmp_path: Path, flags: list[str], fault: str, finding: str, words: str
) -> None:
    split = ("--tensor-model-parallel-size", "2")
    named, seen, title = verdict(start, tmp_path, 4, TENSOR_PARALLEL, fault, *flags, *split)
    assert (named, seen) == (1, finding), title
    assert words in title
    # A group of its own: the ranks with the other half of the batch have another one.
    assert "(ranks 0-1)" in title
