"""relkit why: good input, wrong input, and nothing to find."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner, Result

from relkit.cli import cli
from tests.unit.why.job_logs import RESET, raised, steps


def why(*words: str | Path, text: str | None = None) -> Result:
    return CliRunner().invoke(cli, ["why", *map(str, words)], input=text, standalone_mode=False)


def test_the_cause_the_rank_the_place_and_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "job.out").write_text(f"{raised(0, RESET)}\n{raised(3, 'KeyError: 1')}\n")
    result = why(tmp_path)
    assert result.return_value == 1
    lines = result.output.splitlines()
    assert lines[0].startswith("FAIL  RK-WHY-001  rank 3: the program raised an exception, at w/tr")
    assert f"{tmp_path}/job.out:12: rank 3: KeyError: 1" in lines[1]
    assert lines[-1].lstrip().startswith("do: ")


def test_one_document_of_json(tmp_path: Path) -> None:
    (tmp_path / "job.out").write_text(raised(3, "MemoryError"))
    (tmp_path / "core.12").write_bytes(b"\x7fELF")
    plain = json.loads(why(tmp_path, "--json").output)
    assert plain["schema"] == "relkit.why/1"
    assert (plain["cause"], plain["culprits"], plain["who"]) == ("host-oom", [3], "rank 3")
    assert [file["used_for"] for file in plain["files"]] == ["", "log"]
    assert plain["first_errors"][0]["line"] == 6
    assert [finding["id"] for finding in plain["findings"]] == ["RK-WHY-001", "RK-WHY-006"]


def test_the_same_files_give_the_same_answer(tmp_path: Path) -> None:
    for rank in range(4):
        (tmp_path / f"rank{rank}.log").write_text(raised(None, f"ValueError: {rank % 2}"))
    first, second = (json.loads(why(tmp_path, "--json").output) for _ in range(2))
    assert {**first, "meta": None} == {**second, "meta": None}


def test_standard_input() -> None:
    result = why("-", text=raised(3, "KeyError: 1"))
    assert result.return_value == 1
    assert "-:6: rank 3: KeyError: 1" in result.output


def test_nothing_to_find_is_no_answer_and_says_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "job.out").write_text(steps(9))
    result = why(tmp_path)
    assert result.return_value == 3
    assert "RK-WHY-004" in result.output
    assert "missing: " in result.output


def test_what_only_followed_is_no_answer(tmp_path: Path) -> None:
    (tmp_path / "job.out").write_text("\n".join(raised(rank, RESET) for rank in range(3)))
    result = why(tmp_path)
    assert result.return_value == 3
    assert "RK-WHY-003  nobody: " in result.output


def test_no_rank_is_named_for_what_the_scheduler_did(tmp_path: Path) -> None:
    (tmp_path / "job.out").write_text(
        "slurmstepd: error: *** JOB 1 ON n1 CANCELLED AT 2026-11-28T22:00:00 DUE TO TIME LIMIT ***"
    )
    result = why(tmp_path)
    assert result.return_value == 1
    assert "RK-WHY-002  nobody: the job's time was over" in result.output


def test_a_path_that_is_not_there(tmp_path: Path) -> None:
    result = why(tmp_path / "none")
    assert result.exception is not None
    assert result.exception.exit_code == 2  # type: ignore[attr-defined]
