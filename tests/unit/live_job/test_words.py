"""What a running job's row says: GPUs, checkpoints, other users, findings of this run only."""

from __future__ import annotations

import io
import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from relkit.accounting import journal_folder
from relkit.commands.shared.job_screen import screen_of
from relkit.findings import Report
from relkit.live_job import report
from relkit.live_job.gpus import Gpu, gpu_words, parse_gpus
from relkit.live_job.saved import Saved, age_words, saved_words, within
from tests.waiting import eventually

ROW: dict[str, Any] = {
    "job_id": "a[bold]job", "state": "running", "health": "hung", "nodes": [0, 1], "of_nodes": 4,
    "ranks": 32, "attempt": 2, "step": 120, "step_age_s": 3.0, "steps_total": 1000,
    "rate_per_s": 0.25, "eta_s": 3600.0, "slow": ["rank 3 (n1)"],
    "saved": [{"where": "memory", "step": 119, "age_s": 5.0}],
    "restarts": 2, "last_finding": "RK-HANG-008 rank 3\x1b[31m waits", "timeline": "",
    "ettr": 0.5, "ettr_basis": "steps", "wall_s": 10.0, "begun_unix_s": 1e9,
}  # fmt: skip


def test_a_row_has_what_is_known_and_a_dash_for_the_rest() -> None:
    cells = report.cells_of(ROW)
    assert len(cells) == len(report.HEADER)
    assert cells[1:12] == [
        "hung", "0,1 of 4", "32", "2", "120/1000", "4 s/step", "60 m", "rank 3 (n1)",
        "memory 119 (5 s)", "2", "50.0%",
    ]  # fmt: skip
    nothing = {
        **ROW, "nodes": [], "of_nodes": 0, "ranks": 0, "attempt": -1, "step": None, "eta_s": None,
        "steps_total": None, "rate_per_s": None, "slow": [], "saved": [], "restarts": None,
        "ettr": None, "last_finding": "",
    }  # fmt: skip
    assert report.cells_of(nothing)[2:12] == ["-"] * 10
    assert report.rate_words(3.14159) == "3.14 steps/s"


def test_the_screen_shows_text_from_elsewhere_as_text() -> None:
    shown = io.StringIO()
    facts = {"jobs": [ROW], "gpus": [vars_of(Gpu(0, 97.0, 1024.0, None))], "other_users": [1001]}
    Console(file=shown, width=200).print(screen_of(Report("status", (), facts), 200))
    text = shown.getvalue()
    assert "1 running, 0 ended" in text
    assert "a[bold]job" in text
    assert "RK-HANG-008 rank 3" in text
    assert "\x1b" not in text
    assert "gpu 0: 97 %" in text
    assert "user 1001" in text


def test_on_a_narrow_terminal_a_job_is_one_line() -> None:
    long_id = "ef62ac72-719b-42ed-ac52-fd0a7a4a4987"
    facts = {"jobs": [{**ROW, "job_id": long_id}], "gpus": [], "other_users": []}
    for width, also in ((80, "120/1000"), (50, "hung")):
        shown = io.StringIO()
        Console(file=shown, width=width).print(screen_of(Report("status", (), facts), width))
        table = shown.getvalue().splitlines()[2:4]
        assert table[0].split()[:2] == ["JOB", "HEALTH"]
        assert table[1].startswith(f"{long_id}  hung")
        assert also in table[1]
        assert "no room for" in shown.getvalue()


def vars_of(gpu: Gpu) -> dict[str, Any]:
    return {name: getattr(gpu, name) for name in ("index", "use_percent", "used_mib", "total_mib")}


def test_what_nvidia_smi_says_is_read_and_nothing_else() -> None:
    text = "0, 97, 62464, 81920\n1, [N/A], 5, 81920\nNVIDIA-SMI has failed\n2, nan, -1, x\n"
    assert parse_gpus(text) == (
        Gpu(0, 97.0, 62464.0, 81920.0), Gpu(1, None, 5.0, 81920.0), Gpu(2, None, None, None),
    )  # fmt: skip
    assert gpu_words(Gpu(0, 97.0, 62464.0, 81920.0)) == "gpu 0: 97 %, 61 of 80 GiB"


@given(st.text())
def test_any_text_of_a_tool_is_survived(text: str) -> None:
    assert len(parse_gpus(text)) <= 64


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(None, "-"), (0.4, "0 s"), (119.0, "119 s"), (180.0, "3 m"), (7200.0, "2 h"), (2e5, "2 d")],
)
def test_ages(seconds: float | None, words: str) -> None:
    assert age_words(seconds) == words


def test_checkpoints_in_words_and_a_disk_that_does_not_answer() -> None:
    assert saved_words([Saved("memory", 7, 1.0), Saved("disk", 5, 300.0)]) == (
        "memory 7 (1 s), disk 5 (5 m)"
    )
    assert saved_words([]) == "-"
    stuck, called = threading.Event(), []

    def never() -> Saved | None:
        called.append(1)
        stuck.wait()
        return None

    # Who looks again and again makes no further thread.
    assert [within(0.05, never, "j") for _ in range(3)] == [None] * 3
    assert len(called) == 1
    assert within(20.0, lambda: Saved("disk", 5, 1.0), "other") is not None
    stuck.set()
    eventually(lambda: within(20.0, lambda: Saved("disk", 5, 1.0), "j"), "the end of the first")


def test_a_finding_is_of_this_run_or_none(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text(json.dumps({"job_id": "j", "findings": [{"id": "RK-X", "title": "t"}]}))
    assert report._finding(str(tmp_path), "j", time.time() - 60) == "RK-X t"
    assert report._finding(str(tmp_path), "other", time.time() - 60) == ""
    assert report._finding(str(tmp_path), "j", time.time() + 60) == ""
    path.write_text("[]")
    assert report._finding(str(tmp_path), "j", 0.0) == ""
    assert report._finding("", "j", 0.0) == ""


def test_other_users_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_folder, "_SHARED_MEMORY", tmp_path)
    for uid in (os.geteuid(), 4711, 12):
        (tmp_path / f"relkit-{uid}-jobs").mkdir()
    assert report.other_users() == [12, 4711]
