"""How fast a loop trains, as it leaves a note for the launcher."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from relkit.accounting.worker_notes import RateNotes, read_rate


@pytest.fixture(autouse=True)
def rank_three(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELKIT_HOOK_DIR", str(tmp_path))
    monkeypatch.setenv("RANK", "3")


def test_a_rate_is_noted_and_not_with_every_step(tmp_path: Path) -> None:
    notes = RateNotes()
    notes.note(1000.0, 0.4)
    notes.note(5.0)
    rate = read_rate(tmp_path, 3)
    assert rate is not None
    assert (rate.tokens_per_s, rate.mfu) == (1000.0, 0.4)
    assert read_rate(tmp_path, 0) is None


@pytest.mark.parametrize(
    "note",
    [
        [time.monotonic() - 1000.0, 5.0, None],
        [time.monotonic() + 1000.0, 5.0, None],
        [time.monotonic(), -5.0, None],
        [time.monotonic(), float("nan"), None],
        [time.monotonic(), 5.0, 7.0],
        ["x"],
        {},
    ],
)
def test_what_says_nothing_of_now(tmp_path: Path, note: object) -> None:
    path = tmp_path / "rank-3.rate"
    path.write_text(json.dumps(note))
    path.chmod(0o600)
    assert read_rate(tmp_path, 3) is None
