"""Report: one truth behind the table, the JSON and the exit code."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from relkit.errors import UnwritablePath, UsageProblem
from relkit.findings import Evidence, Finding, Report, Status, worst
from relkit.output import as_json, as_jsonl, as_text, emit, table, write_atomic

BAD = Finding(
    "RK-NET-003",
    Status.FAIL,
    "link n1-n2 is slow",
    ranks="0-1",
    nodes="n[1-2]",
    reasons=("both directions are slow",),
    evidence=(Evidence("busbw", 3.1, "GB/s", 12.0, "ring"),),
    advice="reseat the cable",
)
GOOD = Finding("RK-NET-001", Status.OK, "node n3 is fine")


def test_fail_outranks_unknown_outranks_warn_outranks_ok() -> None:
    order = [Status.OK, Status.WARN, Status.UNKNOWN, Status.FAIL]
    for low, high in itertools.combinations(order, 2):
        assert worst([high, low]) is high
        assert worst([low, high]) is high


def test_no_data_never_looks_healthy() -> None:
    assert worst([]) is Status.UNKNOWN
    assert worst([Status.SKIP]) is Status.UNKNOWN
    assert Report("net", ()).exit_code == 3


@pytest.mark.parametrize(
    ("status", "code"),
    [(Status.OK, 0), (Status.WARN, 0), (Status.FAIL, 1), (Status.UNKNOWN, 3)],
)
def test_exit_code_follows_the_worst_finding(status: Status, code: int) -> None:
    assert Report("net", (GOOD, Finding("X", status, "t"))).exit_code == code


def test_json_is_one_document_with_schema_and_facts() -> None:
    document = json.loads(as_json(Report("net", (BAD,), {"culprits": [2]}, argv=("relkit",))))
    assert document["schema"] == "relkit.net/1"
    assert document["status"] == "fail"
    assert document["culprits"] == [2]
    assert document["findings"][0]["evidence"][0]["threshold"] == 12.0
    assert document["meta"]["argv"] == ["relkit"]


def test_jsonl_is_one_finding_a_line() -> None:
    lines = as_jsonl(Report("net", (BAD, GOOD))).splitlines()
    assert [json.loads(line)["id"] for line in lines] == ["RK-NET-003", "RK-NET-001"]


def test_text_says_why_how_and_what_next() -> None:
    text = as_text(Report("net", (BAD,)))
    assert "FAIL  RK-NET-003  link n1-n2 is slow" in text
    assert "because both directions are slow" in text
    assert "busbw: 3.1 GB/s (threshold 12.0 GB/s)  [ring]" in text
    assert "do: reseat the cable" in text
    assert "\x1b[" not in text


def test_table_aligns_columns_without_boxes() -> None:
    text = table([["0", "node1", "ok"], ["11", "n2", "hung"]], ["rank", "host", "state"])
    assert text == "RANK  HOST   STATE\n0     node1  ok\n11    n2     hung"


def test_emit_refuses_to_overwrite_unless_forced(tmp_path: Path) -> None:
    target = tmp_path / "report.json"
    emit(Report("net", (GOOD,)), "json", target)
    with pytest.raises(UsageProblem, match="exists already"):
        emit(Report("net", (BAD,)), "json", target)
    emit(Report("net", (BAD,)), "json", target, force=True)
    assert json.loads(target.read_text())["status"] == "fail"
    assert target.stat().st_mode & 0o777 == 0o600


def test_write_atomic_leaves_the_old_file_and_no_litter_on_failure(tmp_path: Path) -> None:
    with pytest.raises(UnwritablePath):
        write_atomic(tmp_path / "missing" / "x", "data")
    occupied = tmp_path / "folder"
    (occupied / "inside").mkdir(parents=True)
    with pytest.raises(UnwritablePath):
        write_atomic(occupied, "data")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]
