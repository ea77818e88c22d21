"""Dumps, stacks and watchdogs among the files -> the verdict of relkit's analysis of hangs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from relkit.errors import RelkitError
from relkit.findings import Report
from relkit.flight_recorder.analyze import analyze, read_dump
from relkit.flight_recorder.find_files import DumpFile, find_sources
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


def is_one_run(left: Path, right: Path) -> bool | None:
    """Whether two dumps of one rank are of one run; None where that does not show."""
    try:
        dumps = [read_dump(DumpFile(path, 0)) for path in (left, right)]
    except RelkitError:
        return None
    worlds = [max(map(len, dump.groups.values()), default=0) for dump in dumps]
    if 0 not in worlds and worlds[0] != worlds[1]:
        return False
    begun = [{e.record_id: e.created_ns for e in dump.entries if e.created_ns} for dump in dumps]
    if not all(begun):
        return None
    both = begun[0].keys() & begun[1].keys()
    if any(begun[0][record] == begun[1][record] for record in both):
        return True
    backends = [{entry.backend for entry in dump.entries} for dump in dumps]
    if backends[0].isdisjoint(backends[1]):
        # Two recorders of one process, if they ran at the same time.
        windows = [(min(times.values()), max(times.values())) for times in begun]
        return True if windows[0][0] <= windows[1][1] and windows[1][0] <= windows[0][1] else None
    first, second = sorted(begun, key=lambda times: min(times.values()))
    return False if both or max(first.values()) < min(second.values()) else None


def _is_good(path: Path, notes: dict[Path, str]) -> bool:
    try:
        analyze(*find_sources([path]))
    except RelkitError as error:
        notes[path] = str(error).removeprefix(f"{path} ")
        return False
    return True
