"""How fast a loop trains, as it leaves a note for the launcher."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from relkit.accounting.worker_notes import RateNotes, read_rate

NOW_S = 5000.0


@pytest.fixture(autouse=True)
def rank_three(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At a moment that does not go by."""
    monkeypatch.setenv("RELKIT_HOOK_DIR", str(tmp_path))
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setattr("relkit.accounting.worker_notes.time.monotonic", lambda: NOW_S)


def leave(tmp_path: Path, note: object) -> None:
    path = tmp_path / "rank-3.rate"
    path.write_text(json.dumps(note))
    path.chmod(0o600)


def test_a_rate_is_noted_and_not_with_every_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = RateNotes()
    notes.note(1000.0, 0.4)
    notes.note(5.0)
    rate = read_rate(tmp_path, 3)
    assert rate is not None
    assert (rate.tokens_per_s, rate.mfu) == (1000.0, 0.4)
    assert read_rate(tmp_path, 0) is None
    monkeypatch.setattr("relkit.accounting.worker_notes.time.monotonic", lambda: NOW_S + 5.0)
    notes.note(5.0)
    rate = read_rate(tmp_path, 3)
    assert rate is not None
    assert (rate.tokens_per_s, rate.mfu) == (5.0, None)


@pytest.mark.parametrize("note", [[NOW_S, 5.0, None], [NOW_S - 119.0, 0.0, 1.0]])
def test_what_says_something_of_now(tmp_path: Path, note: object) -> None:
    leave(tmp_path, note)
    assert read_rate(tmp_path, 3) is not None


@pytest.mark.parametrize(
    "note",
    [
        [NOW_S - 121.0, 5.0, None],
        [NOW_S + 1.0, 5.0, None],
        [NOW_S, -5.0, None],
        [NOW_S, float("nan"), None],
        [NOW_S, float("inf"), None],
        [NOW_S, 5.0, 7.0],
        [NOW_S, 5.0],
        ["x"],
        {},
    ],
)
def test_what_says_nothing_of_now(tmp_path: Path, note: object) -> None:
    leave(tmp_path, note)
    assert read_rate(tmp_path, 3) is None
