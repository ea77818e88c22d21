"""Dumps that are not there, say nothing, or are damaged: named, no proof, and no end."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from relkit.cli import run
from relkit.findings import Report
from relkit.flight_recorder.analyze import analyze, find_sources, judged
from relkit.hang.model import Category
from tests.unit.flight_recorder.flight_builders import Plain, document, entry, steps

Writer = Callable[[Path], object]
GROUPS = {
    "0": range(8),
    **{f"tp{n}": (2 * n, 2 * n + 1) for n in range(4)},
    **{f"dp{n}": (n, n + 2, n + 4, n + 6) for n in range(2)},
}
OF_NO_USE: dict[str, tuple[Writer, str]] = {
    "empty": (lambda p: p.write_bytes(b""), "is empty"),
    "cut": (lambda p: p.write_bytes(pickle.dumps(document(steps(6)))[:700]), "truncated"),
    "entry-less": (lambda p: p.write_bytes(pickle.dumps(document([]))), "holds no operation"),
    "reason-only": (
        lambda p: p.write_bytes(pickle.dumps({"version": "2.10", "reason": "watchdog timeout"})),
        'has no entries, only the reason "watchdog timeout"',
    ),
    "text": (lambda p: p.write_text("Killed\n", encoding="utf-8"), "Expecting value"),
    "json": (lambda p: p.write_text('{"version": "2.10"', encoding="utf-8"), "delimiter"),
}


def write(folder: Path, documents: Mapping[int, Plain], name: str = "nccl_trace_rank_{}") -> Path:
    for rank, plain in documents.items():
        (folder / name.format(rank)).write_bytes(pickle.dumps(plain))
    return folder


def report_of(folder: Path) -> Report:
    return analyze(*find_sources([folder]))


@pytest.mark.parametrize("kind", OF_NO_USE)
@pytest.mark.parametrize("missing", [0, 1, 3])
def test_a_dump_that_says_nothing_accuses_nobody(tmp_path: Path, kind: str, missing: int) -> None:
    write(tmp_path, {rank: document(steps(8, "scheduled")) for rank in range(4)})
    writer, why = OF_NO_USE[kind]
    writer(tmp_path / f"nccl_trace_rank_{missing}")
    report = report_of(tmp_path)
    unknown, left_out = report.findings
    assert (unknown.id, report.exit_code) == ("RK-HANG-010", 3)
    assert unknown.title.startswith(f"rank {missing} may be late for all_reduce #8")
    assert f"nccl_trace_rank_{missing}" in left_out.reasons[0]
    assert why in left_out.reasons[0]
    assert report.facts["culprits"] == []


@pytest.mark.parametrize("kind", OF_NO_USE)
@pytest.mark.parametrize(("damaged", "late"), [(1, 2), (3, 0), (0, 3)])
def test_a_dump_that_says_nothing_stops_nothing(
    tmp_path: Path, kind: str, damaged: int, late: int
) -> None:
    write(
        tmp_path,
        {r: document(steps(7, "completed") if r == late else steps(8)) for r in range(4)},
    )
    OF_NO_USE[kind][0](tmp_path / f"nccl_trace_rank_{damaged}")
    report = report_of(tmp_path)
    assert [(f.id, f.ranks) for f in report.findings] == [
        ("RK-HANG-008", str(late)), ("RK-HANG-018", "")
    ]  # fmt: skip
    assert report.exit_code == 1


@pytest.mark.parametrize("kind", sorted({*OF_NO_USE} - {"text"}))
def test_where_no_dump_says_anything_that_is_all_there_is_to_say(
    tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for rank in range(2):
        OF_NO_USE[kind][0](tmp_path / f"nccl_trace_rank_{rank}")
    assert run(["hang", "analyze", str(tmp_path)]) == 3
    printed = "".join(capsys.readouterr())
    assert f"{tmp_path / 'nccl_trace_rank_0'} is not a flight-recorder dump" in printed or (
        kind == "entry-less" and OF_NO_USE[kind][1] in printed
    )


def test_an_empty_dump_whose_recorder_has_counted_is_a_rank_with_nothing_in_flight(
    tmp_path: Path,
) -> None:
    """torch can write the operations alone that have not ended."""
    dumps = {rank: document([entry(8, state="scheduled")]) for rank in range(4)}
    counts = {"last_enqueued_collective": "7", "last_completed_collective": "7"}
    dumps[2] = {**document([]), "pg_status": {"0": counts}}
    write(tmp_path, dumps)
    (first,) = report_of(tmp_path).findings
    assert (first.id, first.ranks) == ("RK-HANG-008", "2")
    assert any("the last one that it started there is #7" in reason for reason in first.reasons)


def until(rank: int, kind: str) -> list[Plain]:
    """Steps of a tensor- and data-parallel job, up to the call of a kind that does not end."""
    entries: list[Plain] = []
    for step in range(1, 6):
        for each, number in (("tp", rank // 2), ("dp", rank % 2)):
            is_last = (step, each) == (5, kind)
            entries.append(
                entry(
                    step,
                    state="started" if is_last else "completed",
                    group=(f"{each}{number}", each),
                    time_created_ns=10**9 * (1 + len(entries)),
                )
            )
            if is_last:
                return entries
    return entries


def late_job(late: int) -> dict[int, Plain]:
    """One rank is on its host; all others wait for it, or for the one that waits for it."""
    kinds = {rank: "tp" if rank // 2 == late // 2 else "dp" for rank in range(8)}
    entries = {rank: until(rank, kind) for rank, kind in kinds.items()}
    entries[late].pop()
    return {rank: document(each, GROUPS) for rank, each in entries.items()}


@pytest.mark.parametrize("late", range(8))
def test_with_any_dump_left_out_the_answer_stays(tmp_path: Path, late: int) -> None:
    """In nine of ten cases it is right, and the missing rank is not named for being missing."""
    write(tmp_path, late_job(late))
    right = 0
    for missing in range(8):
        kept = [path for path in tmp_path.iterdir() if path.name != f"nccl_trace_rank_{missing}"]
        _, verdict = judged(*find_sources(kept))
        culprits = [culprit.rank for culprit in verdict.culprits]
        right += culprits == [late]
        assert set(culprits) <= {late}
        if missing == late and culprits:
            (culprit,) = verdict.culprits
            assert culprit.category is Category.ABSENT
            assert "it is the only rank that all of these need" in culprit.reasons
    assert right >= 7


def test_a_missing_rank_that_alone_explains_two_groups_is_named(tmp_path: Path) -> None:
    dumps = late_job(3)
    del dumps[3]
    (culprit,) = judged(*find_sources([write(tmp_path, dumps)]))[1].culprits
    assert (culprit.rank, culprit.category) == (3, Category.ABSENT)
    assert culprit.score < 0.7


def test_a_file_that_is_not_read_is_said(tmp_path: Path) -> None:
    write(tmp_path, {rank: document(steps(8)) for rank in range(4)})
    (tmp_path / "job.log").write_text("step 1\nstep 2\n", encoding="utf-8")
    (tmp_path / "old.log.gz").write_bytes(b"\x1f\x8b\x08\x00")
    report = report_of(tmp_path)
    files = {Path(each["path"]).name: each["used_as"] for each in report.facts["files"]}
    assert files == {f"nccl_trace_rank_{rank}": f"dump of rank {rank}" for rank in range(4)}
    assert [text.rpartition("/")[2] for text in report.facts["passed_over"]] == [
        "job.log: neither stacks nor a traceback nor a watchdog's line is in it"
    ]
    named = analyze(*find_sources([*tmp_path.iterdir()]))
    assert "old.log.gz: it is compressed: unpack it first" in json.dumps(named.facts)


def test_overwritten_operations_are_said_and_a_verdict_is_worth_less(tmp_path: Path) -> None:
    def dumps(first: int) -> dict[int, Plain]:
        documents = {r: document(steps(7, "completed") if r == 2 else steps(8)) for r in range(4)}
        for plain in documents.values():
            for number, each in enumerate(plain["entries"]):
                each["record_id"] = first + number
        return documents

    for name, first in (("whole", 0), ("overrun", 5000)):
        (tmp_path / name).mkdir()
        write(tmp_path / name, dumps(first))
    whole, overrun = (
        judged(*find_sources([tmp_path / name]))[1].culprits[0] for name in ("whole", "overrun")
    )
    assert whole.rank == overrun.rank == 2
    assert overrun.score == round(whole.score * 0.9, 2)
    assert "the recorders of ranks 0-3 had no room for 4999 earlier operations" in overrun.reasons
