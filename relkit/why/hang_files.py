"""Dumps, stacks and watchdogs among the files -> the verdict of relkit's analysis of hangs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from relkit.errors import RelkitError
from relkit.findings import Report
from relkit.flight_recorder.analyze import analyze
from relkit.flight_recorder.find_files import find_sources
from relkit.why.model import HangWord


def hang_of(paths: Sequence[Path]) -> tuple[HangWord | None, Report | None, dict[Path, str]]:
    """What the analysis of hangs says of these files.

    Args:
        paths: dumps, stacks, and logs in which a watchdog speaks.

    Returns:
        Its word and its report, None where it can say nothing; and by file why it was left out.
    """
    if not paths:
        return None, None, {}
    notes: dict[Path, str] = {}
    try:
        report = analyze(*find_sources(paths))
    except RelkitError:
        # One that cannot be used must not cost the others.
        good = [path for path in paths if _is_good(path, notes)]
        if not good:
            return None, None, notes
        try:
            report = analyze(*find_sources(good))
        except RelkitError as error:
            return None, None, {path: str(error) for path in paths} | notes
    details = report.facts.get("culprit_details", [])
    score = max((float(each["score"]) for each in details), default=0.0)
    culprits = tuple(report.facts.get("culprits", ()))
    return HangWord(culprits, str(report.facts.get("verdict", "")), score), report, notes


def _is_good(path: Path, notes: dict[Path, str]) -> bool:
    try:
        analyze(*find_sources([path]))
    except RelkitError as error:
        notes[path] = str(error).removeprefix(f"{path} ")
        return False
    return True
