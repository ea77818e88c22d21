"""Dumps, stacks and logs of one job, judged together."""

from __future__ import annotations

import os
import pickle
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from relkit.errors import BadInputFile
from relkit.findings import Report
from relkit.flight_recorder.analyze import NoDumps, analyze, find_sources, judged
from relkit.flight_recorder.file_names import rank_of_name
from relkit.hang.model import Category
from relkit.hang_picture.folder import read_hang
from relkit.stacks.dumpfile import encode, file_name
from relkit.stacks.model import Frame, RankDump, Role, ThreadStack
from tests.unit.flight_recorder.flight_builders import Plain, document, entry, steps

DAY_NS = 24 * 3600 * 10**9
WAITS = """Process 4711: python train.py
Python v3.11.7 (/usr/bin/python3.11)

Thread 4711 (idle): "MainThread"
    wait (threading.py:327)
    get (queue.py:171)
    next_batch (gpt/loader.py:88)
    <module> (train.py:12)
"""
IN_COLLECTIVE = """Process 4712: python train.py
Python v3.11.7 (/usr/bin/python3.11)

Thread 4712 (idle): "MainThread"
    all_reduce (torch/distributed/distributed_c10d.py:2501)
    step (train.py:84)
"""


def timed_out(
    rank: int, seq: int, op: str = "ALLREDUCE", *, group: str = "0 PG GUID 0(default_pg)"
) -> str:
    prefix = f"[rank{rank}]:[E321 02:07:08.4 ProcessGroupNCCL.cpp:1]"
    return (
        f"{prefix} [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL("
        f"SeqNum={seq}, OpType={op}, NumelIn=9, NumelOut=9, Timeout(ms)=600000) ran for 600032 "
        f"milliseconds before timing out.\n{prefix} [PG ID {group} Rank {rank}]  failure detected "
        f"by watchdog at work sequence id: {seq} PG status: last enqueued work: {seq}, last "
        f"completed work: {seq - 1}\n"
    )


def idle(rank: int, last: int) -> str:
    return (
        f"[rank{rank}]:[E703 15:37:17.1 ProcessGroupNCCL.cpp:1987] [PG ID 0 PG GUID 0(default_pg) "
        f"Rank {rank}] Received a dump signal due to a collective timeout from  rank 0 and we "
        f"will try our best to dump the debug info. Last enqueued NCCL work: {last}, "
        f"last completed NCCL work: {last}.\n"
    )


def moved(entries: list[Plain]) -> list[Plain]:
    """The same operations, two days after 1970."""
    times = ("time_created_ns", "time_discovered_started_ns", "time_discovered_completed_ns")
    return [
        {**each, **{key: each[key] + 2 * DAY_NS for key in times if each[key]}} for each in entries
    ]


def folder_of(path: Path, dumps: Mapping[int, Plain], **texts: str) -> Path:
    path.mkdir(exist_ok=True)
    for rank, plain in dumps.items():
        (path / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(plain))
    for name, text in texts.items():
        (path / name.replace("__", ".")).write_text(text, encoding="utf-8")
    return path


def analyzed(folder: Path) -> Report:
    return analyze(*find_sources([folder]))


def blamed(folder: Path) -> list[tuple[int, Category]]:
    _, verdict = judged(*find_sources([folder]))
    return [(culprit.rank, culprit.category) for culprit in verdict.culprits]


def test_a_stack_names_the_line_of_a_rank_without_a_dump(tmp_path: Path) -> None:
    folder_of(tmp_path, {rank: document(steps(6)) for rank in range(3)}, rank3__txt=WAITS)
    first, *others = analyzed(tmp_path).findings
    assert others == []
    assert (first.id, first.ranks) == ("RK-HANG-008", "3")
    assert "in gpt/loader.py:88 next_batch, waiting on a queue" in first.title
    assert any("rank3.txt (py-spy's text)" in reason for reason in first.reasons)


def test_a_stack_beside_the_ranks_own_dump(tmp_path: Path) -> None:
    """The recorder knows the last call; the stack where the rank went from there."""
    dumps = {rank: document(steps(6)) for rank in range(4)}
    dumps[2] = document(steps(5, "completed"))
    folder_of(tmp_path, dumps, pyspy_2__log=WAITS)
    (first,) = analyzed(tmp_path).findings
    assert "in gpt/loader.py:88 next_batch" in first.title
    assert "ranks 0-1,3 wait for it in all_reduce #6" in first.title
    assert "its newest operation was called in gpt/train.py:75 step" in first.reasons


def test_a_log_says_how_far_a_rank_without_a_dump_had_come(tmp_path: Path) -> None:
    dumps = {rank: document(steps(6)) for rank in (0, 1)}
    folder_of(tmp_path, dumps, slurm__out=idle(2, 5) + timed_out(3, 6))
    report = analyzed(tmp_path)
    assert blamed(tmp_path) == [(2, Category.BLOCKED)]
    assert "ranks 0-1,3 wait for it in all_reduce #6" in report.findings[0].title
    assert any(
        "last enqueued operation of the default group is #5" in reason
        for reason in report.findings[0].reasons
    )
    assert report.facts["sources"] == {
        "dumps": "0-1", "stacks": "", "logs": "2-3", "left_out": []
    }  # fmt: skip


def test_logs_alone(tmp_path: Path) -> None:
    text = "".join(timed_out(rank, 6) for rank in (0, 1, 3)) + idle(2, 5)
    folder_of(tmp_path / "late", {}, job__log=text)
    assert blamed(tmp_path / "late") == [(2, Category.BLOCKED)]
    odd = "".join(timed_out(n, 6, "BROADCAST" if n == 1 else "ALLREDUCE") for n in range(4))
    folder_of(tmp_path / "odd", {}, job__log=odd)
    assert blamed(tmp_path / "odd") == [(1, Category.MISMATCH)]
    _, verdict = judged(*find_sources([tmp_path / "odd"]))
    assert verdict.culprits[0].score == 0.72
    assert "no rank has a dump: judged by logs of ranks 0-3" in verdict.culprits[0].reasons


@pytest.mark.parametrize("rank", [0, 1])
def test_the_log_of_a_rank_that_waits_accuses_nobody(tmp_path: Path, rank: int) -> None:
    folder_of(tmp_path, {}, **{f"rank{rank}__log": timed_out(rank, 6)})
    (finding,) = analyzed(tmp_path).findings
    assert finding.id == "RK-HANG-010"
    assert finding.title.startswith(f"rank {rank} waits, and nothing of the other ranks shows for")


def test_a_stack_alone(tmp_path: Path) -> None:
    folder_of(tmp_path / "waits", {}, rank1__txt=IN_COLLECTIVE)
    assert blamed(tmp_path / "waits") == []
    folder_of(tmp_path / "late", {}, rank1__txt=WAITS)
    assert blamed(tmp_path / "late") == [(1, Category.BLOCKED)]


def test_logs_of_some_ranks_do_not_speak_for_all(tmp_path: Path) -> None:
    folder_of(tmp_path, {}, job__log=timed_out(0, 6) + timed_out(1, 6))
    (finding,) = analyzed(tmp_path).findings
    assert "; no rank has a dump: judged by logs of ranks 0-1" in finding.title


def test_what_is_older_than_the_dumps_is_of_an_earlier_hang(tmp_path: Path) -> None:
    dumps = {rank: document(moved(steps(6))) for rank in range(4)}
    dumps[2] = document(moved(steps(5, "completed")))
    text = "".join(timed_out(rank, 900) for rank in (0, 2, 3)) + idle(1, 899)
    folder_of(tmp_path, dumps, job__log=text, rank2__txt=WAITS)
    thread = ThreadStack(9, "MainThread", (Frame("step", "/j/old.py:7"),), Role.MAIN, "S")
    stale = RankDump(2, 4, 9, "S", python=(thread,), job_id="j", captured_unix_ns=DAY_NS)
    (tmp_path / file_name(2, 4)).write_bytes(encode(stale))
    for name in ("job.log", "rank2.txt"):
        os.utime(tmp_path / name, ns=(DAY_NS, DAY_NS))
    report = analyzed(tmp_path)
    assert blamed(tmp_path) == [(2, Category.BLOCKED)]
    assert "loader.py" not in report.findings[0].title
    assert [finding.id for finding in report.findings] == ["RK-HANG-008", "RK-HANG-018"]
    assert report.facts["sources"]["stacks"] == report.facts["sources"]["logs"] == ""
    # Clocks differ a little; what is as new is used.
    for name in ("job.log", "rank2.txt"):
        os.utime(tmp_path / name, ns=(2 * DAY_NS, 2 * DAY_NS))
    assert analyzed(tmp_path).facts["sources"]["logs"] == "0-3"


def test_logs_of_an_earlier_attempt(tmp_path: Path) -> None:
    for attempt, last, silent in ((2, 900, 2), (10, 50, 1)):
        for rank in {0, 1, 2, 3} - {silent}:
            folder = tmp_path / f"attempt_{attempt}" / str(rank)
            folder.mkdir(parents=True)
            (folder / "stderr.log").write_text(timed_out(rank, last), encoding="ascii")
    report = analyzed(tmp_path)
    assert report.facts["sources"]["logs"] == "0,2-3"
    assert [Path(text.partition(":")[0]).name for text in report.facts["sources"]["left_out"]] == [
        "attempt_2"
    ]
    assert report.findings[0].id == "RK-HANG-010"
    assert report.findings[0].title.startswith("rank 1 may be late for all_reduce #50")


def test_stacks_of_an_earlier_incident(tmp_path: Path) -> None:
    folder_of(tmp_path, {rank: document(steps(6)) for rank in range(3)})
    thread = ThreadStack(9, "MainThread", (Frame("step", "/j/old.py:7"),), Role.MAIN, "S")
    earlier = tmp_path / "previous-j"
    earlier.mkdir()
    (earlier / file_name(3, 4)).write_bytes(encode(RankDump(3, 4, 9, "S", python=(thread,))))
    report = analyzed(tmp_path)
    assert report.facts["sources"]["stacks"] == ""
    assert len(report.facts["sources"]["left_out"]) == 1
    # Whoever names that folder means it.
    assert analyze(*find_sources([earlier])).facts["sources"]["stacks"] == "3"


def test_a_folder_in_which_nothing_can_be_used_says_why(tmp_path: Path) -> None:
    folder_of(tmp_path, {}, stacks__txt=WAITS)
    with pytest.raises(NoDumps, match=r"stacks\.txt: py-spy's text, but neither it nor its name"):
        find_sources([tmp_path])


def test_a_file_that_cannot_be_used_is_named_where_no_other_is_used(tmp_path: Path) -> None:
    folder_of(tmp_path, {rank: document(steps(6)) for rank in range(3)}, stacks__txt=WAITS)
    assert analyzed(tmp_path).findings[-1].id == "RK-HANG-018"


def test_stacks_alone_of_all_ranks(tmp_path: Path) -> None:
    texts = {f"rank{rank}__txt": WAITS if rank == 2 else IN_COLLECTIVE for rank in range(4)}
    folder_of(tmp_path, {}, **texts)
    (first,) = analyzed(tmp_path).findings
    assert (first.id, first.ranks) == ("RK-HANG-008", "2")
    assert "ranks 0-1,3 wait for it in a collective, as its stack shows" in first.title


def test_a_stacktrace_file_beside_dumps(tmp_path: Path) -> None:
    folder_of(tmp_path, {rank: document(steps(6)) for rank in range(3)})
    frames = Frame("wait", "/usr/lib/python3.11/threading.py:327"), Frame("step", "/j/train.py:7")
    thread = ThreadStack(9, "MainThread", frames, Role.MAIN, "S")
    dump = RankDump(3, 4, 9, "S (sleeping)", python=(thread,), host="n3", job_id="j")
    (tmp_path / file_name(3, 4)).write_bytes(encode(dump))
    for report in (analyzed(tmp_path), read_hang(tmp_path).report):
        assert report.findings[0].title.startswith("rank 3 (n3, pid 9): in j/train.py:7 step")


def test_a_text_of_that_name(tmp_path: Path) -> None:
    folder_of(tmp_path, {rank: document(steps(6)) for rank in range(3)})
    (tmp_path / "trace_3.stacktrace").write_text(WAITS, encoding="ascii")
    assert "gpt/loader.py:88" in analyzed(tmp_path).findings[0].title


def test_a_log_that_is_newer_than_the_dump(tmp_path: Path) -> None:
    dumps = {rank: document(steps(6)) for rank in range(4)}
    dumps[1] = document(steps(4))
    folder_of(tmp_path, dumps, rank1__log=timed_out(1, 6) + idle(2, 5))
    report = analyzed(tmp_path)
    disputed = next(f for f in report.findings if f.id == "RK-HANG-017")
    assert (disputed.ranks, disputed.status.value) == ("1", "warn")
    assert "its dump ends with #4 of the default group, but the watchdog in" in disputed.reasons[0]
    # With the log, rank 1 waits like the others, in the operation that they have.
    assert "1" not in report.findings[0].ranks


def test_a_verdict_that_rests_on_a_contradiction_is_worth_less(tmp_path: Path) -> None:
    text = "".join(timed_out(rank, 8) for rank in (0, 1, 3))
    late = {2: document(steps(6, "completed"))}
    for name, last in (("a", 7), ("b", 8)):
        others = {rank: document(steps(last)) for rank in (0, 1, 3)}
        folder_of(tmp_path / name, others | late, job__log=text)
    (disputed,), (agreed,) = (judged(*find_sources([tmp_path / n]))[1].culprits for n in "ab")
    assert disputed.rank == agreed.rank == 2
    assert disputed.score == round(agreed.score * 0.8, 2)


def test_another_operation_than_in_the_dump(tmp_path: Path) -> None:
    dumps = {rank: document(steps(6)) for rank in range(4)}
    folder_of(tmp_path, dumps, job__log=timed_out(1, 6, "BROADCAST"))
    report = analyzed(tmp_path)
    (disputed,) = [f for f in report.findings if f.id == "RK-HANG-017"]
    assert (
        "BROADCAST #6 of the default group timed out, its dump has all_reduce there"
        in (disputed.reasons[0])
    )
    # The dump counts: nobody made another call.
    assert report.findings[0].id == "RK-HANG-010"


def desync(started: str, *, seq: int = 6) -> str:
    """What rank 0 writes of how far the others had come."""
    return (
        "[rank0]:[E a.cpp:9] [PG ID 0 PG GUID 0(default_pg) Rank 0] Timeout at collective: "
        f"ALLREDUCE, #{seq}\n\t - Snapshot of ranks' latest states:\n\t   #{seq} started ranks:\n"
        f"\t     [{started}] started ALLREDUCE\n"
    )


def test_what_others_say_of_a_rank_disputes_no_operation_that_its_dump_has_ended(
    tmp_path: Path,
) -> None:
    """They saw it a little earlier; its own watchdog would have known."""
    dumps = {rank: document(steps(6)) for rank in range(4)}
    dumps[1] = document(steps(6, "completed"))
    ids = {}
    for name, text in (("others", desync("1")), ("own", timed_out(1, 6))):
        folder_of(tmp_path / name, dumps, rank0__log=text)
        ids[name] = [finding.id for finding in analyzed(tmp_path / name).findings]
    assert "RK-HANG-017" not in ids["others"]
    assert "RK-HANG-017" in ids["own"]


@pytest.mark.parametrize(("own", "others"), [("a", "b"), ("b", "a")])
def test_what_a_rank_says_itself_counts_before_what_others_say(
    tmp_path: Path, own: str, others: str
) -> None:
    for rank in (0, 2, 3):
        folder_of(tmp_path, {}, **{f"rank{rank}__log": timed_out(rank, 6)})
    folder_of(tmp_path, {}, **{f"{own}__log": idle(1, 5), f"{others}__log": desync("1", seq=6)})
    assert blamed(tmp_path) == [(1, Category.BLOCKED)]


def test_what_a_log_confirms_is_no_dispute(tmp_path: Path) -> None:
    dumps = {rank: document(steps(6, name="all_reduce_barrier")) for rank in range(4)}
    text = "".join(timed_out(rank, 6) for rank in range(4))
    folder_of(tmp_path, dumps, job__log=text)
    assert [finding.id for finding in analyzed(tmp_path).findings] == ["RK-HANG-010"]


def test_ranks_of_a_group_are_those_that_the_dumps_list(tmp_path: Path) -> None:
    groups = {"0": range(4), "7": (1, 3)}
    stuck = [entry(6, state="started", group=("7", "tp"))]
    dumps = {rank: document(stuck if rank == 1 else [], groups) for rank in range(3)}
    text = idle(1, 5).replace("[rank1]:", "").replace("0 PG GUID 0(default_pg)", "2 PG GUID 7(tp)")
    folder_of(tmp_path, dumps, job__log=text)
    joined, verdict = judged(*find_sources([tmp_path]))
    assert joined.logs == (3,)
    assert [culprit.rank for culprit in verdict.culprits] == [3]


def test_what_cannot_be_used_is_named(tmp_path: Path) -> None:
    dumps = {rank: document(steps(6)) for rank in range(3)}
    folder_of(tmp_path, dumps, stacks__txt=WAITS, rank9__txt=WAITS)
    (tmp_path / "00003-00004.stacktrace").write_bytes(b"\xff" * 100)
    os.mkfifo(tmp_path / "rank2.log")
    (left_out,) = [f for f in analyzed(tmp_path).findings if f.id == "RK-HANG-018"]
    named = {Path(reason.partition(":")[0]).name for reason in left_out.reasons}
    assert named == {"stacks.txt", "rank9.txt", "00003-00004.stacktrace", "rank2.log"}


@pytest.mark.parametrize(
    ("name", "rank"),
    [("rank3.txt", 3), ("pyspy_3.log", 3), ("trace_3.stacktrace", 3), ("rank_03_pid4711.txt", 3),
     ("pyspy-4711.txt", None), ("n1.rank12.out", 12), ("2026-11-23.txt", None), ("a.txt", None),
     ("3.txt", 3), ("node0-rank3.txt", 3), ("gpunode_rank3.txt", 3), ("node_rank0.txt", None),
     ("local_rank2.txt", None), ("gpu3.txt", None), ("slurm-1234.out", None)],
)  # fmt: skip
def test_the_rank_in_a_name(name: str, rank: int | None) -> None:
    assert rank_of_name(Path("/stacks") / name, 4711) == rank
    assert rank_of_name(Path("/rank_7/stack.txt"), 4711) == 7
    assert rank_of_name(Path("/node_rank_7/stack.txt"), 4711) is None


def test_the_log_of_a_node_is_not_that_of_a_rank(tmp_path: Path) -> None:
    lines = "".join(re.sub(r"\[rank\d\]:", "", timed_out(rank, 6)) for rank in (1, 2, 3))
    folder_of(tmp_path, {}, node_rank0__log=lines)
    assert analyzed(tmp_path).facts["sources"]["logs"] == "1-3"


def test_a_newer_stack_counts(tmp_path: Path) -> None:
    folder_of(tmp_path, {rank: document(steps(6)) for rank in range(3)}, rank3__txt=WAITS)
    old = tmp_path / "pyspy_3.txt"
    old.write_text(WAITS.replace("88", "99"), encoding="ascii")
    os.utime(old, ns=(1, 1))
    assert "loader.py:88" in analyzed(tmp_path).findings[0].title


def test_the_page_has_the_same_verdict(tmp_path: Path) -> None:
    folder_of(
        tmp_path, {0: document(steps(6))}, rank3__txt=WAITS, job__log=timed_out(1, 6) + idle(2, 6)
    )
    evidence = read_hang(tmp_path)
    assert [f.id for f in evidence.report.findings] == [f.id for f in analyzed(tmp_path).findings]
    assert evidence.merged is not None


def test_nothing_of_use(tmp_path: Path) -> None:
    folder_of(tmp_path, {}, job__log="step 1: loss 3\n")
    with pytest.raises(NoDumps):
        find_sources([tmp_path])
    (tmp_path / "report.json").write_text("{", encoding="ascii")
    with pytest.raises(BadInputFile):
        read_hang(tmp_path)
