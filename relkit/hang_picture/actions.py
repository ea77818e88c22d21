"""What relkit did about a hang: noted beside its evidence, one line of JSON each."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from relkit.files.input_file import read_input
from relkit.text.foreign_json import parse_object
from relkit.text.printable import printable_line

FILE = "actions.jsonl"
MAX_ACTIONS = 64
_MAX_TEXT = 600
_LIMIT_BYTES = 256 << 10


@dataclass(frozen=True, slots=True)
class Action:
    """One thing that relkit did, or that became of the job.

    Args:
        unix_s: when, by the clock of the launcher's host, s.
        text: in words.
        ends_ranks: the processes that were captured are gone from then on.
    """

    unix_s: float
    text: str
    ends_ranks: bool = False


def to_lines(actions: Iterable[Action]) -> str:
    """Write actions as the text of a file."""
    return "".join(
        json.dumps({"unix_s": each.unix_s, "text": each.text, "ends_ranks": each.ends_ranks}) + "\n"
        for each in actions
    )


def read_actions(folder: Path) -> tuple[Action, ...]:
    """Read what is noted in a folder, by time; what is damaged there is left out.

    Args:
        folder: of the hang.
    """
    try:
        lines = read_input(folder / FILE, _LIMIT_BYTES).splitlines()[:MAX_ACTIONS]
    except OSError:
        return ()
    actions = (_action(line) for line in lines)
    return tuple(sorted((a for a in actions if a is not None), key=lambda a: a.unix_s))


def _action(line: bytes) -> Action | None:
    try:
        plain = parse_object(line)
    except ValueError:
        return None
    unix_s, text = plain.get("unix_s"), plain.get("text")
    if not isinstance(unix_s, (int, float)) or not isinstance(text, str):
        return None
    # No date that a page could show is beyond it; this is false for what is no number, too.
    if not 0 <= unix_s < 1e11:
        return None
    return Action(float(unix_s), printable_line(text)[:_MAX_TEXT], plain.get("ends_ranks") is True)
