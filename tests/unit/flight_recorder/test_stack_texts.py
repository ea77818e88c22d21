"""Stacks of ranks alone: who waits, who is elsewhere, and whose they are."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relkit.flight_recorder.analyze import analyze, find_sources, judged
from relkit.flight_recorder.file_names import rank_of_name
from relkit.flight_recorder.spy_text import parse_spy_text
from relkit.hang.activity import ThreadState
from relkit.hang.model import Category
from relkit.hang.stackclass import classify
from tests.unit.flight_recorder.stack_texts import (
    ENDS,
    LOADS,
    WAITS,
    fault_text,
    spy_json,
    spy_text,
)

FORMATS: dict[str, Callable[..., str]] = {
    "rank{}.txt": spy_text,
    "rank{}.json": spy_json,
    "rank{}.log": fault_text,
}
# What is active in the backward pass computes.
COMPUTES = ("backward", True)
NOT_SPINNING = ("horovod", "megatron", "backward")


def named(folder: Path) -> list[int]:
    _, verdict = judged(*find_sources([folder]))
    return [culprit.rank for culprit in verdict.culprits]


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(("world", "late"), [(4, 2), (16, 4), (2, 0), (9, 8)])
def test_an_active_stack_in_torch_distributed_waits(
    tmp_path: Path, name: str, world: int, late: int
) -> None:
    """Under NCCL the main thread waits by spinning: py-spy calls that active."""
    ways = [frames for kind, frames in WAITS.items() if kind not in NOT_SPINNING]
    for rank in range(world):
        frames = LOADS if rank == late else ways[rank % len(ways)]
        text = FORMATS[name](frames, 700 + rank, active=rank != late)
        (tmp_path / name.format(rank)).write_text(text, encoding="utf-8")
    report = analyze(*find_sources([tmp_path]))
    first = report.findings[0]
    assert (first.id, first.ranks) == ("RK-HANG-008", str(late))
    assert "train.py:90 next_batch, loading data" in first.title
    assert named(tmp_path) == [late]


@pytest.mark.parametrize(
    ("kind", "active"),
    [(kind, active) for kind in WAITS for active in (True, False) if (kind, active) != COMPUTES],
)
def test_each_way_to_wait_for_other_ranks(kind: str, active: bool) -> None:
    (process,) = parse_spy_text(spy_text(WAITS[kind], 7, active=active).splitlines())
    assert classify(process.dump(0), None).waits_for_peers


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("late", [0, 3])
def test_the_many_in_backward_wait_for_the_one_that_is_elsewhere(
    tmp_path: Path, name: str, late: int
) -> None:
    """DDP exchanges gradients below the backward pass, in frames that only native stacks show."""
    for rank in range(4):
        frames = LOADS if rank == late else WAITS["backward"]
        text = FORMATS[name](frames, 700 + rank)
        (tmp_path / name.format(rank)).write_text(text, encoding="utf-8")
    assert named(tmp_path) == [late]


def test_all_in_backward_accuse_nobody(tmp_path: Path) -> None:
    for rank in range(4):
        text = spy_text(WAITS["backward"], 700 + rank)
        (tmp_path / f"rank{rank}.txt").write_text(text, encoding="utf-8")
    assert named(tmp_path) == []


def test_the_one_that_computes_in_backward_is_late(tmp_path: Path) -> None:
    for rank in range(4):
        frames = WAITS["backward" if rank == 1 else "all_reduce"]
        text = spy_text(frames, 700 + rank, active=rank == 1)
        (tmp_path / f"rank{rank}.txt").write_text(text, encoding="utf-8")
    assert named(tmp_path) == [1]


@pytest.mark.parametrize(
    ("native", "state"),
    [
        ("cudaStreamSynchronize (libcudart.so.12)", ThreadState.COLLECTIVE),
        ("c10d::ProcessGroupNCCL::WorkNCCL::synchronizeStream (libtorch_cuda.so)",
         ThreadState.COLLECTIVE),
        ("sgemm_kernel_HASWELL (libopenblas.so)", ThreadState.COMPUTE),
        ("gc_collect_main (python3.10)", ThreadState.GC),
    ],
)  # fmt: skip
def test_native_frames_below_an_active_collective_say_what_it_does(
    native: str, state: ThreadState
) -> None:
    text = spy_text(WAITS["all_reduce"], 7, active=True, native=[native])
    (process,) = parse_spy_text(text.splitlines())
    assert classify(process.dump(0), None).thread_state is state


def test_a_recorder_that_sees_no_call_says_that_active_code_prepares_one() -> None:
    (process,) = parse_spy_text(spy_text(WAITS["all_reduce"], 7, active=True).splitlines())
    assert classify(process.dump(0), ()).thread_state is ThreadState.RUNNING


@given(st.integers(3, 9), st.data())
def test_the_few_that_are_blocked_come_before_the_many_that_run(
    world: int, data: st.DataObject
) -> None:
    """A loss that is read waits for the device: nothing in such a stack shows that."""
    late = data.draw(st.integers(0, world - 1))
    with_item = (("step", "train.py", 99), *ENDS)
    with tempfile.TemporaryDirectory() as folder:
        for rank in range(world):
            frames = LOADS if rank == late else with_item
            text = spy_text(frames, 700 + rank, active=rank != late)
            (Path(folder) / f"rank{rank}.txt").write_text(text, encoding="utf-8")
        assert named(Path(folder)) == [late]


def test_where_half_run_and_half_are_blocked_all_are_named(tmp_path: Path) -> None:
    for rank in range(4):
        frames = LOADS if rank % 2 else (("step", "train.py", 99), *ENDS)
        text = spy_text(frames, 700 + rank, active=rank % 2 == 0)
        (tmp_path / f"rank{rank}.txt").write_text(text, encoding="utf-8")
    assert named(tmp_path) == [0, 2, 1, 3]


def host_text(frames_of_ranks: list[tuple[tuple[str, str, int], ...]], first: int) -> str:
    return "\n".join(
        spy_text(frames, first + n, active=frames is not LOADS, note=" --local_rank 0")
        for n, frames in enumerate(frames_of_ranks)
    )


@pytest.mark.parametrize("late", [0, 5, 8, 15])
def test_a_text_with_the_processes_of_a_host_is_no_rank(tmp_path: Path, late: int) -> None:
    ranks = [LOADS if n == late else WAITS["all_reduce"] for n in range(16)]
    for host in range(2):
        text = host_text([tuple(r) if r is not LOADS else LOADS for r in ranks[8 * host :][:8]],  # type: ignore[misc]
                         100 + 8 * host)  # fmt: skip
        (tmp_path / f"trace-node0{host + 2}.out").write_text(text, encoding="utf-8")
    report = analyze(*find_sources([tmp_path]))
    unknown, left_out = report.findings
    assert (unknown.id, unknown.ranks) == ("RK-HANG-010", "")
    assert (
        f"process {100 + late} of trace-node0{2 + late // 8}.out, in train.py:90" in unknown.title
    )
    assert "of which ranks the stacks of 16 processes are" in unknown.title
    assert left_out.id == "RK-HANG-018"
    assert all("stacks of 8 processes" in reason for reason in left_out.reasons)
    assert report.facts["culprits"] == []


def test_the_loaders_of_a_rank_are_no_ranks(tmp_path: Path) -> None:
    loader = (("_worker_loop", "torch/utils/data/_utils/worker.py", 308), *ENDS)
    for rank in range(3):
        frames = LOADS if rank == 1 else WAITS["all_reduce"]
        text = spy_text(frames, 10 * rank + 1) + "\n" + spy_text(loader, 10 * rank + 2)
        (tmp_path / f"pyspy_{rank}.log").write_text(text, encoding="utf-8")
    assert named(tmp_path) == [1]
    report = analyze(*find_sources([tmp_path]))
    assert [f.id for f in report.findings] == ["RK-HANG-008"]
    assert report.facts["files"][0]["used_as"] == (
        "stacks of rank 0 (1 more processes in it are helpers, and not used)"
    )


@pytest.mark.parametrize(
    ("name", "rank"),
    [("trace-jz-iam02.out", None), ("trace-gpu-a17.out", None), ("n3.txt", None), ("dump-3.txt", 3),
     ("trace3.out", 3), ("stack_12.txt", 12), ("r7.log", 7),
     ("frank3.log", None), ("logRank3.txt", 3)],
)  # fmt: skip
def test_numbers_of_hosts_are_none_of_ranks(name: str, rank: int | None) -> None:
    assert rank_of_name(Path("/w") / name, 4711) == rank


def test_marks_in_the_lines_of_faulthandler_say_the_rank(tmp_path: Path) -> None:
    texts = [
        fault_text(LOADS if rank == 3 else WAITS["broadcast"], 700 + rank, mark=f"[rank{rank}]: ")
        for rank in range(5)
    ]
    (tmp_path / "job.log").write_text("".join(texts), encoding="utf-8")
    _, verdict = judged(*find_sources([tmp_path]))
    assert [(c.rank, c.category) for c in verdict.culprits] == [(3, Category.BLOCKED)]


def test_of_several_dumps_of_one_process_the_last_counts(tmp_path: Path) -> None:
    for rank in range(3):
        later = LOADS if rank == 0 else WAITS["all_reduce"]
        text = fault_text(WAITS["all_reduce"], 7) + "step 7\n" + fault_text(later, 7)
        (tmp_path / f"rank{rank}.log").write_text(text, encoding="utf-8")
    assert named(tmp_path) == [0]


def test_json_that_is_not_py_spys_is_named(tmp_path: Path) -> None:
    for rank in range(2):
        (tmp_path / f"rank{rank}.txt").write_text(spy_text(LOADS, 7), encoding="utf-8")
    (tmp_path / "trace.json").write_text('[{"ph": "X", "dur": 7}]', encoding="utf-8")
    report = analyze(*find_sources([tmp_path]))
    assert "trace.json: py-spy: a thread of its output has no frames" in str(
        report.facts["sources"]["left_out"]
    )
