"""What the tests of one unit came to, read from the plugin's lines; touches no process."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

_ORDER = ("passed", "skipped", "failed")
# pytest's exit codes: all passed, some failed, nothing to run
_PASSED, _FAILED, _EMPTY = 0, 1, 5


@dataclass(frozen=True)
class Problem:
    """One line of the final list.

    Args:
        what: a test's id, or what else did not go well.
        unit: the folder or tool it belongs to.
        lane: which lane ran it.
        is_test: whether it counts as a failed test; else as an error.
        error: what a test failed with, of any number of lines; "" where `what` says it.
    """

    what: str
    unit: str
    lane: str
    is_test: bool = True
    error: str = ""


@dataclass
class UnitResult:
    """The tests of one pytest process, as far as they got.

    Args:
        unit: its name.
        lane: which lane ran it.
        seconds: wall time of the process.
        cpu_s: CPU time of it and of what it has started and waited for; None where it was never
            known.
        collected: number of tests; None where it was never known.
        outcomes: worst outcome of each test.
        durations: seconds of each test: setup, call and teardown.
        cpu_of: CPU seconds of each test, of its children included that it waited for.
        reasons: why a test was skipped, or what it failed with first.
        running: the test that has begun and not finished.
        problems: what went wrong; filled in by `finish`.
    """

    unit: str
    lane: str
    seconds: float = 0.0
    cpu_s: float | None = None
    collected: int | None = None
    outcomes: dict[str, str] = field(default_factory=dict)
    durations: dict[str, float] = field(default_factory=dict)
    cpu_of: dict[str, float] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    running: str = ""
    problems: list[Problem] = field(default_factory=list)

    def read(self, lines: Iterable[str]) -> list[str]:
        """Take the plugin's lines; returns the tests that were finished in them."""
        finished = []
        for line in lines:
            event = json.loads(line)
            if event["event"] == "collected":
                self.collected = event["count"]
            elif event["event"] == "cpu":
                self.cpu_s = event["seconds"]
            elif event["event"] == "started":
                self.running = event["test"]
                self.cpu_of[self.running] = -event["cpu_s"]
            elif event["event"] == "finished":
                self.running = ""
                self.cpu_of[event["test"]] += event["cpu_s"]
                finished.append(event["test"])
            else:
                self._outcome(event)
        return finished

    def _outcome(self, event: dict[str, object]) -> None:
        test, outcome = str(event["test"]), str(event["outcome"])
        before = self.outcomes.get(test, "passed")
        self.outcomes[test] = max(before, outcome, key=_ORDER.index)
        self.durations[test] = self.durations.get(test, 0.0) + float(str(event["seconds"]))
        if event["reason"]:
            # A test that fails may fail once more as it is cleaned up: the first error says why.
            self.reasons.setdefault(test, str(event["reason"]))

    def count(self, outcome: str) -> int:
        """How many tests ended so."""
        return sum(1 for each in self.outcomes.values() if each == outcome)

    def finish(self, exit_code: int, *, strict: bool, some_left_out: bool, stalled: bool) -> None:
        """Judge the process that ran them.

        Args:
            exit_code: negative where a signal ended it.
            strict: a test that was skipped counts as failed.
            some_left_out: tests were left out by marker, so there may be none.
            stalled: it was killed, as nothing had happened for too long.
        """
        if self.running:
            self.outcomes[self.running] = "failed"
        for test, outcome in self.outcomes.items():
            if test == self.running:
                self._problem(f"{test} (was running when the process ended)")
            elif outcome == "failed":
                self._problem(test, self.reasons.get(test, ""))
            elif outcome == "skipped" and strict:
                self._problem(f"{test} (skipped: {self.reasons.get(test, 'no reason')})")
        missing = (self.collected or 0) - len(self.outcomes)
        ended = f"ended by signal {-exit_code}" if exit_code < 0 else f"exit code {exit_code}"
        if stalled:
            ended = "killed: no test ended for too long"
        harmless = exit_code == _EMPTY and some_left_out
        if exit_code not in (_PASSED, _FAILED) and not harmless:
            self._error(f"{self.unit}: {ended}; {max(0, missing)} tests did not run")
        elif exit_code == _FAILED and not self.problems:
            self._error(f"{self.unit}: exit code 1, but no test has failed")
        elif missing > 0 or (self.collected is None and not harmless):
            self._error(f"{self.unit}: {missing} tests did not run")

    def _problem(self, what: str, error: str = "") -> None:
        self.problems.append(Problem(what, self.unit, self.lane, error=error))

    def _error(self, what: str) -> None:
        self.problems.append(Problem(what, self.unit, self.lane, is_test=False))
