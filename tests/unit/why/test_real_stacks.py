"""Stacks of a job that hung, printed by gdb, pystack, py-spy and faulthandler themselves."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from relkit.why.explain import explain

DATA = Path(__file__).parents[2] / "data" / "hung_gloo"
TOOLS = (
    "gdb", "gdb_bt", "pystack", "pystack_native", "pyspy", "pyspy_native", "faulthandler",
)  # fmt: skip
# faulthandler prints no number of a process: two texts in one file may be one process.
WITH_PIDS = TOOLS[:-1]


def text(tool: str, rank: int) -> str:
    return (DATA / f"{tool}_rank{rank}.txt").read_text(encoding="utf-8")


def facts_of(folder: Path) -> dict[str, Any]:
    return dict(explain([folder]).facts)


@pytest.mark.parametrize("tool", TOOLS)
def test_the_rank_that_does_not_wait_is_named(tool: str, tmp_path: Path) -> None:
    for rank in (0, 1):
        shutil.copy(DATA / f"{tool}_rank{rank}.txt", tmp_path)
    facts = facts_of(tmp_path)
    assert (facts["cause"], facts["culprits"]) == ("hang", [1])


@pytest.mark.parametrize("tool", TOOLS)
def test_the_waiting_rank_alone_accuses_nobody(tool: str, tmp_path: Path) -> None:
    shutil.copy(DATA / f"{tool}_rank0.txt", tmp_path)
    assert facts_of(tmp_path)["culprits"] == []


@pytest.mark.parametrize("tool", TOOLS)
def test_a_stack_of_no_rank_says_so(tool: str, tmp_path: Path) -> None:
    shutil.copy(DATA / f"{tool}_rank1.txt", tmp_path / "stack.txt")
    facts = facts_of(tmp_path)
    assert facts["culprits"] == []
    assert "of which rank" in facts["files"][0]["note"]


@pytest.mark.parametrize("tool", WITH_PIDS)
def test_two_processes_in_one_text_are_no_ranks(tool: str, tmp_path: Path) -> None:
    (tmp_path / "all.txt").write_text(text(tool, 0) + text(tool, 1))
    facts = facts_of(tmp_path)
    assert facts["culprits"] == []
    assert "process 18409 of all.txt" in facts["hang"]


@pytest.mark.parametrize("tool", TOOLS)
def test_two_processes_in_one_text_with_marks_are_ranks(tool: str, tmp_path: Path) -> None:
    marked = [
        f"[rank{rank}]: {line}\n" for rank in (0, 1) for line in text(tool, rank).splitlines()
    ]
    (tmp_path / "all.txt").write_text("".join(marked))
    assert facts_of(tmp_path)["culprits"] == [1]
