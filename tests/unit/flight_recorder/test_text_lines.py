"""Lines of logs: behind progress bars, in docker's JSON, of any length; whose a traceback is."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relkit.flight_recorder.analyze import analyze, find_sources, judged
from relkit.flight_recorder.text_lines import LONGEST, lines_of
from relkit.flight_recorder.traceback_log import parse_tracebacks
from relkit.hang.model import Category

OLD = "[E ProcessGroupNCCL.cpp:821] [Rank {rank}] "
NEW = "[rank{rank}]:[E626 06:24:44.903881913 ProcessGroupNCCL.cpp:616] [Rank {rank}] "
TIMED_OUT = (
    "Watchdog caught collective operation timeout: WorkNCCL(SeqNum={seq}, OpType=ALLREDUCE, "
    "Timeout(ms)=1800000) ran for 1803110 milliseconds before timing out."
)
IDLE = (
    "[rank{rank}]:[E626 06:24:45.0 ProcessGroupNCCL.cpp:1389] [PG ID 0 PG GUID 0(default_pg) Rank "
    "{rank}] Received a dump signal due to a collective timeout from rank 0 and we will try our "
    "best to dump the debug info. Last enqueued NCCL work: {seq}, last completed NCCL work: {seq}."
)
STATUS = (
    "[rank{rank}]:[E626 06:24:44.9 ProcessGroupNCCL.cpp:1785] [PG ID 0 PG GUID 0(default_pg) Rank "
    "{rank}] Exception (either an error or timeout) detected by watchdog at work: {seq}, last "
    "enqueued NCCL work: {seq}, last completed NCCL work: {before}."
)


def bar(steps: int, end: str) -> str:
    """A progress bar that is drawn again and again in one line."""
    return "".join(
        f"{end}Epoch 3:  {step / 30:4.1f}%|## | {step}/3000 [01:00<00:10, 2.31it/s, loss=0.79]"
        for step in range(steps)
    )


def log_of(world: int, late: int | None, ahead: Callable[[int], str] = lambda _: "") -> str:
    lines = []
    for rank in range(world):
        if rank == late:
            lines.append(IDLE.format(rank=rank, seq=807))
        else:
            lines += [
                (NEW + TIMED_OUT).format(rank=rank, seq=808),
                STATUS.format(rank=rank, seq=808, before=807),
            ]
    return "".join(f"{ahead(n)}{line}\n" for n, line in enumerate(lines))


def named(folder: Path) -> list[tuple[int, Category]]:
    _, verdict = judged(*find_sources([folder]))
    return [(culprit.rank, culprit.category) for culprit in verdict.culprits]


@pytest.mark.parametrize("end", ["\r", "\x1b[A", "\r\x1b[K", "  "])
@pytest.mark.parametrize(("world", "late"), [(4, 2), (4, 0), (8, 7)])
def test_the_end_of_a_line_with_a_progress_bar_is_read(
    tmp_path: Path, end: str, world: int, late: int
) -> None:
    text = log_of(world, late, lambda _: bar(400, end))
    (tmp_path / "train.log").write_text(text, encoding="utf-8")
    assert named(tmp_path) == [(late, Category.BLOCKED)]


@pytest.mark.parametrize("behind", [0, 1, 3])
def test_a_bar_ahead_of_one_rank_changes_nothing(tmp_path: Path, behind: int) -> None:
    lines = [(OLD + TIMED_OUT).format(rank=rank, seq=808) for rank in range(4)]
    lines[behind] = bar(300, "\r") + lines[behind]
    (tmp_path / "train.log").write_text("\n".join(lines) + "\n", encoding="utf-8")
    report = analyze(*find_sources([tmp_path]))
    assert [finding.id for finding in report.findings] == ["RK-HANG-010"]
    assert report.findings[0].title.startswith("all ranks have called all_reduce #808")
    assert report.exit_code == 3


def as_docker(text: str, *, longest: int = 16_384) -> str:
    """docker's json-file: an object a line, and long lines in several."""
    objects = []
    for line in text.splitlines(keepends=True):
        objects += [line[at : at + longest] for at in range(0, len(line), longest)]
    return "".join(
        json.dumps({"log": part, "stream": "stderr", "time": "2026-01-01T00:00:00.0Z"}) + "\n"
        for part in objects
    )


def as_kubernetes(text: str) -> str:
    return "".join(f"2026-01-01T00:00:00.0Z stderr F {line}\n" for line in text.splitlines())


def as_messages(text: str) -> str:
    lines = text.splitlines()
    return "".join(json.dumps({"ts": 1.5, "level": "ERROR", "msg": line}) + "\n" for line in lines)


@pytest.mark.parametrize("name", ["train.log", "abc-json.log", "0.log"])
@pytest.mark.parametrize(
    "form", [as_docker, as_kubernetes, as_messages, lambda text: as_docker(text, longest=100)]
)
@pytest.mark.parametrize("late", [0, 2])
def test_what_collectors_of_logs_write(
    tmp_path: Path, form: Callable[[str], str], name: str, late: int
) -> None:
    (tmp_path / name).write_text(form(log_of(4, late)), encoding="utf-8")
    assert named(tmp_path) == [(late, Category.BLOCKED)]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
def test_other_encodings(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "train.log").write_bytes(log_of(4, 2).replace("\n", "\r\n").encode(encoding))
    assert named(tmp_path) == [(2, Category.BLOCKED)]


@given(st.text(max_size=300), st.binary(max_size=300))
def test_any_text_and_any_bytes_give_lines_of_bounded_length(text: str, data: bytes) -> None:
    for each in (text.encode("utf-8", "surrogatepass"), data):
        assert all(0 < len(line) <= LONGEST for line in lines_of(each))


def test_a_line_of_many_megabytes_takes_little_more_than_itself() -> None:
    data = b"x" * (8 << 20) + (OLD + TIMED_OUT).format(rank=3, seq=9).encode() + b"\n"
    tracemalloc.start()
    try:
        lines = [line for line in lines_of(data) if "Watchdog" in line]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [line.startswith("[E ProcessGroupNCCL") for line in lines] == [True]
    assert peak < 6 * len(data)


def traceback(rank: int | None, error: str, line: int = 84, *, own: str = "/w/train.py") -> str:
    mark = "" if rank is None else f"[rank{rank}]: "
    lines = ["Traceback (most recent call last):", f'  File "{own}", line {line}, in step',
             "    y = batch['label']", "        ~~~~~^^^^^^^^^", error]  # fmt: skip
    return "".join(f"{mark}{each}\n" for each in lines)


@pytest.mark.parametrize(
    "error",
    [
        "KeyError: 'label'",
        "ValueError",
        "torch.OutOfMemoryError: CUDA out of memory.",
        "my.Bad: no",
    ],
)
@pytest.mark.parametrize(("world", "failed"), [(4, 3), (4, 0), (8, 5)])
def test_a_rank_of_which_only_a_traceback_speaks(
    tmp_path: Path, world: int, failed: int, error: str
) -> None:
    text = traceback(failed, error) + "".join(
        STATUS.format(rank=rank, seq=20, before=19) + "\n"
        for rank in range(world)
        if rank != failed
    )
    (tmp_path / "train.log").write_text(text, encoding="utf-8")
    report = analyze(*find_sources([tmp_path]))
    first = report.findings[0]
    assert (first.id, first.ranks, report.exit_code) == ("RK-HANG-002", str(failed), 1)
    assert f"raised {error} in w/train.py:84 step" in first.title


def test_a_traceback_in_a_log_that_is_one_ranks_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "rank2.log").write_text(traceback(None, "KeyError: 1"), encoding="utf-8")
    for rank in (0, 1, 3):
        text = STATUS.format(rank=rank, seq=20, before=19)
        (tmp_path / f"rank{rank}.log").write_text(text, encoding="utf-8")
    assert named(tmp_path) == [(2, Category.DEAD)]


def test_a_rank_that_failed_because_of_another_is_no_culprit(tmp_path: Path) -> None:
    broken = "torch.distributed.DistBackendError: NCCL error: remote process exited or there was a "
    text = traceback(1, broken + "network error") + traceback(2, "KeyError: 'label'")
    text += traceback(0, "RuntimeError: Connection closed by peer [10.0.0.2]:4711")
    (tmp_path / "train.log").write_text(text, encoding="utf-8")
    assert named(tmp_path) == [(2, Category.DEAD)]


def test_a_rank_that_caught_its_exception_and_waits_is_no_culprit(tmp_path: Path) -> None:
    text = traceback(1, "KeyError: 'warned'") + log_of(4, 2)
    (tmp_path / "train.log").write_text(text, encoding="utf-8")
    assert named(tmp_path) == [(2, Category.BLOCKED)]


def test_of_chained_exceptions_the_last_ended_the_rank() -> None:
    text = (
        traceback(3, "KeyError: 'label'", 10)
        + "[rank3]: \n[rank3]: During handling of the above exception, another exception\n"
        + "[rank3]: \n" + traceback(3, "RuntimeError: bad batch", 20)
        + traceback(4, "SystemExit: 0")
        + "[rank5]: Fatal Python error: Segmentation fault\n"
    )  # fmt: skip
    raised = {each.rank: (each.error, each.where) for each in parse_tracebacks(text.splitlines())}
    assert raised == {
        3: ("RuntimeError: bad batch", "w/train.py:20 step"),
        5: ("Fatal Python error: Segmentation fault", ""),
    }


def test_a_traceback_into_which_others_write_is_one() -> None:
    lines = traceback(3, "KeyError: 1").splitlines()
    torn = "\n".join([*lines[:2], "[rank3]: step 7 | loss 1.0", *lines[2:], "[rank3]: bye bye"])
    assert [(each.rank, each.error) for each in parse_tracebacks(torn.splitlines())] == [
        (3, "KeyError: 1")
    ]


@given(st.text(max_size=400))
def test_any_text_is_read(text: str) -> None:
    parse_tracebacks(("Traceback (most recent call last):\n" + text).splitlines(), 1)
