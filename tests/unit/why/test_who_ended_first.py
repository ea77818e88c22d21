"""Which rank ended first, where the others only tell of lost connections."""

from __future__ import annotations

from pathlib import Path

import pytest

from relkit.why.explain import explain
from tests.unit.why.job_logs import raised, steps

WORLD = "training starts, world size: 3"
LOST = "RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.3]:1222"
TABLE = "============================================================"


def entry(rank: int, code: int, pid: int) -> str:
    said = f"Signal {-code} (SIG) received by PID {pid}" if code < 0 else "To enable traceback see"
    name = {-11: " (SIGSEGV)", -6: " (SIGABRT)", -9: " (SIGKILL)"}.get(code, "")
    return (
        f"  time      : 2026-11-28_22:00:01\n  host      : node1\n"
        f"  rank      : {rank} (local_rank: {rank})\n  exitcode  : {code} (pid: {pid}){name}\n"
        f"  error_file: <N/A>\n  traceback : {said}\n"
    )


def table(codes: dict[int, int], first: int) -> str:
    """torchrun's, of exit codes by rank."""
    others = [entry(rank, code, 100 + rank) for rank, code in codes.items() if rank != first]
    return (
        f"{TABLE}\ntrain.py FAILED\nFailures:\n{''.join(others)}Root Cause (first observed "
        f"failure):\n{entry(first, codes[first], 100 + first)}{TABLE}\n"
    )


def said(folder: Path, files: dict[str, str]) -> tuple[list[int], str]:
    for name, text in files.items():
        (folder / name).write_text(text)
    facts = explain([folder]).facts
    return list(facts["culprits"]), facts["cause"]


@pytest.mark.parametrize(("signal", "cause"), [(11, "segfault"), (6, "abort"), (9, "killed")])
def test_torchruns_first_is_a_victim_of_the_one_that_a_signal_ended(
    tmp_path: Path, signal: int, cause: str
) -> None:
    lost = "\n".join(raised(rank, LOST) for rank in (0, 2, 3))
    text = f"{steps(9)}\n{lost}\n{table({0: 1, 1: -signal, 2: 1, 3: 1}, first=0)}"
    assert said(tmp_path, {"job.log": text}) == ([1], cause)


@pytest.mark.parametrize("silent", [0, 2])
def test_the_one_rank_that_tells_of_no_lost_connection_had_ended(
    tmp_path: Path, silent: int
) -> None:
    logs = {
        f"rank_{rank}.log": f"{WORLD}\n{steps(9)}\n{raised(rank, LOST) if rank != silent else ''}"
        for rank in range(3)
    }
    assert said(tmp_path, logs) == ([silent], "peer-lost")


def test_the_one_with_an_empty_log_had_ended(tmp_path: Path) -> None:
    logs = {
        f"rank_{rank}.log": f"{WORLD}\n{raised(rank, LOST)}" if rank else "" for rank in range(3)
    }
    assert said(tmp_path, logs) == ([0], "peer-lost")


def test_an_exit_code_among_lost_connections(tmp_path: Path) -> None:
    lost = "\n".join(raised(rank, LOST) for rank in (0, 2))
    text = f"{steps(9)}\n{lost}\n{table({0: 1, 1: 3, 2: 1, 3: -15}, first=0)}"
    assert said(tmp_path, {"job.log": text})[0] == [1]


@pytest.mark.parametrize("silent", [(1, 2), ()])
def test_two_silent_ranks_or_none_accuse_nobody(tmp_path: Path, silent: tuple[int, ...]) -> None:
    logs = {
        f"rank_{rank}.log": steps(9) + ("" if rank in silent else "\n" + raised(rank, LOST))
        for rank in range(4)
    }
    assert said(tmp_path, logs) == ([], "peer-lost")


def test_a_silent_rank_among_some_of_a_jobs_ranks_is_not_accused(tmp_path: Path) -> None:
    logs = {
        f"rank_{rank}.log": steps(9) + ("" if rank == 6 else "\n" + raised(rank, LOST))
        for rank in range(4, 8)
    }
    assert said(tmp_path, logs) == ([], "peer-lost")


def test_an_exception_whose_class_stands_in_a_function(tmp_path: Path) -> None:
    own = raised(1, "train.load.<locals>.TokenizerMismatch: 50257 expected, 50304 in the file")
    text = f"{steps(9)}\n{own}\n{raised(0, LOST)}\n"
    culprits, cause = said(tmp_path, {"job.log": text})
    assert (culprits, cause) == ([1], "exception")


@pytest.mark.parametrize("silent", [0, 2])
def test_srun_with_marks_of_torch_in_its_lines(tmp_path: Path, silent: int) -> None:
    """Task and rank are the same where each task is one rank."""
    lines = [f"1: {WORLD}"]
    lines += [f"{rank}: step {i} | loss 3.1" for i in range(9) for rank in range(3)]
    lines += [
        f"{rank}: {line}"
        for rank in range(3)
        if rank != silent
        for line in raised(rank, LOST).splitlines()
    ]
    assert said(tmp_path, {"job.log": "\n".join(lines)}) == ([silent], "peer-lost")


def test_srun_with_several_ranks_a_task(tmp_path: Path) -> None:
    lines = [f"{task}: step {i} | loss 3.1" for i in range(9) for task in range(2)]
    lines += [f"1: {line}" for line in raised(2, LOST).splitlines()]
    assert said(tmp_path, {"job.log": "\n".join(lines)}) == ([], "peer-lost")


@pytest.mark.parametrize(
    ("signal", "error", "cause"),
    [(11, "Segmentation fault", "segfault"), (6, "Aborted", "abort")],
)
def test_a_nameless_crash_is_of_the_rank_that_the_signal_ended(
    tmp_path: Path, signal: int, error: str, cause: str
) -> None:
    crash = f"Fatal Python error: {error}\n\nCurrent thread 0x1 (most recent call first):\n"
    crash += '  File "/w/train.py", line 3 in f\n'
    lost = "\n".join(raised(rank, LOST) for rank in (0, 2, 3))
    text = f"{steps(9)}\n{crash}\n{lost}\n{table({0: 1, 1: -signal, 2: 1, 3: 1}, first=0)}"
    assert said(tmp_path, {"job.log": text}) == ([1], cause)


@pytest.mark.parametrize("said_size", ["", "initialized, world size: 4\n"])
def test_where_the_dead_ranks_own_log_may_be_missing_a_waiting_rank_is_not_accused(
    tmp_path: Path, said_size: str
) -> None:
    """Rank 3 has gone with its log; rank 1 still waits."""
    logs = {
        f"rank_{rank}.log": said_size + steps(9) + ("" if rank == 1 else "\n" + raised(rank, LOST))
        for rank in range(3)
    }
    assert said(tmp_path, logs) == ([], "peer-lost")
    missing = [each["what"] for each in explain([tmp_path]).facts["missing"]]
    assert any("number of ranks" in each for each in missing) is not bool(said_size)


def test_what_a_launcher_says_is_not_of_the_rank_that_it_ended_itself(tmp_path: Path) -> None:
    lines = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: train.py FAILED\n"
    (tmp_path / "agent.log").write_text(lines)
    (tmp_path / "job.log").write_text(table({0: 1, 1: -15}, first=0))
    told = explain([tmp_path]).facts["first_errors"]
    about = [each for each in told if "ChildFailedError" in str(each)]
    assert about
    assert all("rank 1" not in str(each) for each in about), about
