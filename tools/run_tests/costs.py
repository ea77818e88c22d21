"""What tests came to and how much CPU time they took: lines for the screen."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

_MOST = 10


@dataclass
class _File:
    outcomes: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    cpu_s: float = 0.0


class Costs:
    """Adds up results of tests."""

    def __init__(self) -> None:
        self._began_s = time.monotonic()
        self._files: dict[str, _File] = {}
        self._tests: dict[str, float] = {}

    def _file(self, nodeid: str) -> _File:
        return self._files.setdefault(nodeid.split("::", 1)[0], _File())

    def count(self, report: pytest.TestReport) -> None:
        """One of a test's three reports."""
        file = self._file(report.nodeid)
        file.seconds += report.duration
        if report.when == "call" or not report.passed:
            file.outcomes[report.outcome] += 1

    def add(self, nodeid: str, cpu_s: float) -> None:
        """A test that has ended.

        Args:
            nodeid: the test.
            cpu_s: its own and that of what it has started and waited for.
        """
        self._file(nodeid).cpu_s += cpu_s
        self._tests[nodeid] = cpu_s

    def of_file(self, nodeid: str) -> str:
        """The line of a file whose tests have all ended."""
        file = self._file(nodeid)
        counts = ", ".join(f"{count} {word}" for word, count in sorted(file.outcomes.items()))
        minutes, seconds = divmod(int(time.monotonic() - self._began_s), 60)
        name = nodeid.split("::", 1)[0].removeprefix("tests/")
        return (
            f"{minutes:3}:{seconds:02} {name}: {counts} in {file.seconds:.1f} s "
            f"(CPU {file.cpu_s:.1f} s)"
        )

    def lines(self, all_s: float) -> list[str]:
        """CPU seconds of folders and of the tests that took most.

        Args:
            all_s: of the whole run, with what was imported before the first test.
        """
        folders: dict[str, float] = defaultdict(float)
        for name, file in self._files.items():
            folders[name.rpartition("/")[0]] += file.cpu_s
        tests_s = sum(self._tests.values())
        return [
            f"CPU time: {all_s:.0f} s, {tests_s:.0f} s of it in {len(self._tests)} tests",
            *_most("folders", folders),
            *_most("tests", self._tests),
        ]


def _most(what: str, seconds: Mapping[str, float]) -> list[str]:
    rows = sorted(seconds.items(), key=lambda row: -row[1])[:_MOST]
    return [f"{len(rows)} {what} of most CPU:", *(f"  {s:6.1f} s  {name}" for name, s in rows)]
