"""What only a worker knows of its start, left for the launcher beside the recorder's files."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relkit.accounting.attempts import COUNTED
from relkit.errors import RelkitError
from relkit.files.private_file import read_private
from relkit.output import write_atomic
from relkit.text.foreign_json import parse_json
from relkit.text.whole_number import whole_number

_FOLDER_VARIABLE = "RELKIT_HOOK_DIR"
_MAX_BYTES = 4096
# A rate is noted so often at most; one that is older than that says nothing of now.
_RATE_EVERY_S, _RATE_HOLDS_S = 5.0, 120.0


@dataclass(frozen=True, slots=True)
class LoadNote:
    """A checkpoint was loaded, or there was none to load.

    Args:
        begin_s, end_s: monotonic clock.
        step: that it is of; -1 for none.
        source: "memory", "disk" or "".
    """

    begin_s: float
    end_s: float
    step: int = -1
    source: str = ""


class Load:
    """A load under way; `step` and `source` are set by who loads."""

    def __init__(self) -> None:
        self.step, self.source = -1, ""


@contextmanager
def noted_load() -> Iterator[Load]:
    """Around a load: says how long it took, where a launcher wants to know."""
    load, begin_s = Load(), time.monotonic()
    yield load
    note = LoadNote(begin_s, time.monotonic(), load.step, load.source)
    _leave("load", json.dumps([note.begin_s, note.end_s, note.step, note.source]))


def note_total(steps: int) -> None:
    """The loop will end after step `steps` - 1: how long it will take can then be said."""
    _leave("total", json.dumps([time.monotonic(), steps]))


def read_total(folder: Path, rank: int, since_s: float) -> int | None:
    """How many steps a rank has said since then that its loop makes; None where it has not."""
    plain = _read(folder, "total", rank)
    try:
        at_s, steps = float(plain[0]), int(plain[1])
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return steps if at_s >= since_s and 0 < steps < 1 << 40 else None


def note_counted() -> None:
    """The steps of this process are numbered by relkit, from 0, and not by its loop."""
    _leave(COUNTED, json.dumps([time.monotonic()]))


def read_load(folder: Path, rank: int) -> LoadNote | None:
    """What a rank has loaded last; None where it has not said, or cannot be read."""
    plain = _read(folder, "load", rank)
    try:
        begin_s, end_s, step, source = plain
        note = LoadNote(float(begin_s), float(end_s), int(step), str(source)[:20])
    except (ValueError, TypeError, OverflowError):
        return None
    is_sane = 0.0 <= note.begin_s <= note.end_s <= time.monotonic() and -1 <= note.step < 1 << 40
    return note if is_sane else None


def is_counted(folder: Path, rank: int, since_s: float) -> bool:
    """Whether a rank has said since then that its steps are numbered by relkit."""
    plain = _read(folder, COUNTED, rank)
    try:
        return float(plain[0]) >= since_s
    except (ValueError, TypeError, IndexError, OverflowError):
        return False


@dataclass(frozen=True, slots=True)
class RateNote:
    """How fast a loop trains.

    Args:
        at_s: monotonic clock.
        tokens_per_s: of all ranks together.
        mfu: model FLOPs utilisation, 0 to 1; None where that is not known.
    """

    at_s: float
    tokens_per_s: float
    mfu: float | None = None


class RateNotes:
    """Notes for the launcher how fast this process' loop trains; call note() after any step."""

    def __init__(self) -> None:
        self._next_s = 0.0

    def note(self, tokens_per_s: float, mfu: float | None = None) -> None:
        """Leave a note, if it is time for another one.

        Args:
            tokens_per_s: of all ranks together; mfu: 0 to 1; None where that is not known.
        """
        now_s = time.monotonic()
        if now_s >= self._next_s:
            self._next_s = now_s + _RATE_EVERY_S
            _leave("rate", json.dumps([now_s, tokens_per_s, mfu]))


def read_rate(folder: Path, rank: int) -> RateNote | None:
    """How fast a rank's loop has trained lately; None where it has not said."""
    plain = _read(folder, "rate", rank)
    try:
        at_s, tokens_per_s, mfu = plain
        note = RateNote(float(at_s), float(tokens_per_s), None if mfu is None else float(mfu))
    except (ValueError, TypeError, OverflowError):
        return None
    is_new = 0.0 <= time.monotonic() - note.at_s < _RATE_HOLDS_S
    is_sane = 0.0 <= note.tokens_per_s < math.inf and (note.mfu is None or 0.0 <= note.mfu <= 1.0)
    return note if is_new and is_sane else None


def _read(folder: Path, kind: str, rank: int) -> list[Any]:
    try:
        plain = parse_json(read_private(_path(folder, kind, rank), _MAX_BYTES))
    except (OSError, ValueError):
        return []
    return plain if isinstance(plain, list) else []


def _leave(kind: str, text: str) -> None:
    folder, rank = os.environ.get(_FOLDER_VARIABLE, ""), whole_number(os.environ.get("RANK", "0"))
    if not folder or rank is None:
        return
    # A launcher that goes without it only says less.
    with suppress(RelkitError):
        write_atomic(_path(Path(folder), kind, rank), text)


def _path(folder: Path, kind: str, rank: int) -> Path:
    return folder / f"rank-{rank}.{kind}"
