"""What became slower is named; scatter, and what is too rare, is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from relkit.cli import run
from tests.timeline import made_up


def diff(before: Path, after: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, Any]:
    code = run(["timeline", "diff", str(before), str(after), "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_alike_recordings_have_nothing_slower(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed in (1, 2):
        made_up.job(tmp_path / str(seed), 4, seed=seed)
    code, report = diff(tmp_path / "1", tmp_path / "2", capsys)
    assert (code, report["slower"]) == (0, [])
    assert report["compared"] == 3


def test_a_slower_product_is_named_with_medians_and_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made_up.job(tmp_path / "a", 4)
    made_up.job(tmp_path / "b", 4, product_ns=1_300_000)
    code, report = diff(tmp_path / "a", tmp_path / "b", capsys)
    assert code == 1
    (slower,) = report["slower"]
    assert (slower["name"], slower["before_count"], slower["after_count"]) == ("sgemm", 80, 80)
    assert slower["ratio"] == pytest.approx(1.3, rel=0.02)
    assert slower["per_step_us"] == pytest.approx(300, rel=0.05)
    # The other way round it is faster, which is no problem.
    code, report = diff(tmp_path / "b", tmp_path / "a", capsys)
    assert (code, report["slower"], report["faster"][0]["name"]) == (0, [], "sgemm")


def test_a_slower_transfer_is_told_from_waiting_for_a_late_rank(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made_up.job(tmp_path / "a", 4)
    made_up.job(tmp_path / "late", 4, slow_rank=1)
    made_up.job(tmp_path / "slow", 4, transfer_ns=150_000)
    assert diff(tmp_path / "a", tmp_path / "late", capsys)[1]["slower"] == []
    slower = diff(tmp_path / "a", tmp_path / "slow", capsys)[1]["slower"]
    assert [(each["phase"], each["name"], each["group"]) for each in slower] == [
        ("transfer", "allreduce", "0")
    ]


def test_too_few_steps_say_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made_up.job(tmp_path / "a", 1, steps=5)
    made_up.job(tmp_path / "b", 1, steps=5, product_ns=9_000_000)
    code, report = diff(tmp_path / "a", tmp_path / "b", capsys)
    assert (code, report["slower"]) == (3, [])
    assert report["findings"][0]["id"] == "RK-TL-010"
