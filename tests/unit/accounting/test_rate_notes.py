"""How fast a loop trains, as it leaves a note for the launcher."""

from __future__ import annotations

import json
import math
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


def left(folder: Path, note: object) -> None:
    path = folder / "rank-3.rate"
    path.write_text(json.dumps(note))
    path.chmod(0o600)


@pytest.mark.parametrize(
    ("age_s", "tokens_per_s", "mfu", "is_taken"),
    [
        (1.0, 5.0, None, True),
        (1.0, 5.0, 1.0, True),
        (1000.0, 5.0, None, False),
        (-1000.0, 5.0, None, False),
        (1.0, -5.0, None, False),
        (1.0, math.nan, None, False),
        (1.0, 5.0, 7.0, False),
    ],
)
def test_what_says_nothing_of_now(
    tmp_path: Path, age_s: float, tokens_per_s: float, mfu: float | None, is_taken: bool
) -> None:
    # By the clock of now: a whole run collects its tests long before this one.
    left(tmp_path, [time.monotonic() - age_s, tokens_per_s, mfu])
    assert (read_rate(tmp_path, 3) is not None) is is_taken


@pytest.mark.parametrize("note", [["x"], {}, [1.0, 2.0]])
def test_what_is_no_rate(tmp_path: Path, note: object) -> None:
    left(tmp_path, note)
    assert read_rate(tmp_path, 3) is None
