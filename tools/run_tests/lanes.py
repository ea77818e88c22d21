"""Lanes that take units one after the other, and say while they run how it goes."""

from __future__ import annotations

import contextlib
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from tools.run_tests.results import Problem, UnitResult
from tools.run_tests.units import Unit

_POLL_S = 0.5
_QUIET_S = 60.0  # a lane that has said nothing for this long says what it is at
# pytest-timeout ends a test; this ends a process in which not even that works.
_STALLED_S = 1200.0
# mypy says nothing until it has ended. At a load average of 15, 20 minutes were too few for it.
_TOOL_S = 3600.0
_CLEAN_UP_S = 60.0
_TRACEBACK_S = 15.0
_LAST_LINES = 60


@dataclass(frozen=True)
class Rules:
    """What holds for every unit.

    Args:
        selection: pytest's -m, or "".
        strict: skipped tests count as failed.
        work: a folder for logs and records.
    """

    selection: str
    strict: bool
    work: Path


class Screen:
    """Lines of several threads, each with the time and who wrote it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._began = time.monotonic()

    def lines(self, who: str, lines: Sequence[str]) -> None:
        """Write lines that stay together."""
        minutes, seconds = divmod(int(time.monotonic() - self._began), 60)
        with self._lock:
            for line in lines:
                print(f"{minutes:3}:{seconds:02} {who:18} {line}".rstrip(), flush=True)


class Runner:
    """Runs units; one for all lanes.

    Args:
        rules: what holds for every unit.
        screen: where progress is shown.
    """

    def __init__(self, rules: Rules, screen: Screen) -> None:
        self._rules = rules
        self._screen = screen
        self.results: list[UnitResult] = []
        self.lane_s: dict[str, float] = {}
        self.others: list[Problem] = []
        self._stop = threading.Event()

    def run(self, lanes: Sequence[str], units: Sequence[Unit]) -> None:
        """Run all units on these lanes side by side; returns when all have ended."""
        waiting: queue.SimpleQueue[Unit] = queue.SimpleQueue()
        for unit in units:
            waiting.put(unit)
        threads = [threading.Thread(target=self._lane, args=(lane, waiting)) for lane in lanes]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                # A wait without an end may miss Ctrl-C: see relkit/process/interruptible_wait.py.
                while thread.is_alive():
                    thread.join(_POLL_S)
        except KeyboardInterrupt:
            self._stop.set()
            for thread in threads:
                thread.join()
            raise

    def _lane(self, lane: str, waiting: queue.SimpleQueue[Unit]) -> None:
        began = time.monotonic()
        with contextlib.suppress(queue.Empty):
            while not self._stop.is_set():
                unit = waiting.get_nowait()
                try:
                    (self._tool if unit.argv else self._tests)(lane, unit)
                except Exception as error:  # noqa: BLE001 - a lane that ends early is never silent
                    what = f"{unit.name}: {type(error).__name__}: {error}"
                    self.others.append(Problem(what, unit.name, lane, is_test=False))
        self.lane_s[lane] = time.monotonic() - began

    def _tool(self, lane: str, unit: Unit) -> None:
        result = UnitResult(unit.name, lane)
        began = time.monotonic()
        done = subprocess.run(
            unit.argv, check=False, timeout=_TOOL_S, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        result.seconds = time.monotonic() - began
        if done.returncode != 0:
            what = f"{unit.name}: exit code {done.returncode}"
            result.problems.append(Problem(what, unit.name, lane, is_test=False))
            self._screen.lines(unit.name, done.stdout.splitlines())
        word = "failed" if done.returncode else "passed"
        self._screen.lines(unit.name, [f"{word} in {result.seconds:.0f} s"])
        self.results.append(result)

    def _tests(self, lane: str, unit: Unit) -> None:
        result = UnitResult(unit.name, lane)
        name = re.sub(r"[^\w.-]", "-", unit.name)[-100:]
        record, log = self._rules.work / f"{name}.jsonl", self._rules.work / f"{name}.log"
        argv = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider",
                "-p", "tools.run_tests.record_plugin", f"--record={record}"]  # fmt: skip
        if self._rules.selection:
            argv += ["-m", self._rules.selection]
        record.touch()
        began = time.monotonic()
        with log.open("w", encoding="utf-8") as output, record.open(encoding="utf-8") as lines:
            process = subprocess.Popen(
                [*argv, *unit.paths], stdin=subprocess.DEVNULL, stdout=output,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
            try:
                stalled = self._follow(process, result, lines)
            finally:
                if process.poll() is None:
                    process.kill()
                    process.wait()
        result.seconds = time.monotonic() - began
        result.finish(
            process.returncode, strict=self._rules.strict,
            some_left_out=bool(self._rules.selection), stalled=stalled,
        )  # fmt: skip
        self.results.append(result)
        if result.problems:
            self._screen.lines(unit.name, _what_pytest_says(log))
        failed = f", {len(result.problems)} FAILED" if result.problems else ""
        done = f"{result.count('passed')} passed{failed} in {result.seconds:.0f} s"
        self._screen.lines(unit.name, [f"== {done}"])

    def _follow(self, process: subprocess.Popen[bytes], result: UnitResult, lines: TextIO) -> bool:
        """Show what happens until the process ends; True where it had to be killed."""
        files = _Files(lambda line: self._screen.lines(result.unit, [line]))
        spoke = moved = time.monotonic()
        rest = ""
        stalled = False
        while True:
            ended = process.poll() is not None
            rest += lines.read()
            *whole, rest = rest.split("\n")
            now = time.monotonic()
            if whole:
                moved = now
            if files.take(result, result.read(whole)):
                spoke = now
            if ended:
                break
            if now - spoke > _QUIET_S:
                at = result.running or "collecting"
                self._screen.lines(result.unit, [f"{now - moved:.0f} s at {at}"])
                spoke = now
            if self._stop.is_set():
                _end(process, signal.SIGINT, _CLEAN_UP_S)
            elif now - moved > _STALLED_S:
                stalled = True
                # faulthandler writes where it was.
                _end(process, signal.SIGABRT, _TRACEBACK_S)
            else:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_POLL_S)
        files.close(result)
        return stalled


class _Files:
    """Says a line for each test file when its tests are done, and for each failure at once."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._file = ""
        self._tests: list[str] = []

    def take(self, result: UnitResult, finished: Sequence[str]) -> bool:
        """Add tests that have finished; True where a line was written."""
        wrote = False
        for test in finished:
            file = test.split("::", 1)[0]
            if file != self._file:
                wrote |= self.close(result)
                self._file = file
            self._tests.append(test)
            if result.outcomes.get(test) == "failed":
                self._say(f"FAILED {test}")
                wrote = True
        return wrote

    def close(self, result: UnitResult) -> bool:
        """The line of the file whose tests have all been taken."""
        if not self._tests:
            return False
        outcomes = [result.outcomes.get(test, "unknown") for test in self._tests]
        counts = ", ".join(f"{outcomes.count(word)} {word}" for word in sorted(set(outcomes)))
        took = sum(result.durations.get(test, 0.0) for test in self._tests)
        of = f"{len(result.outcomes)}/{result.collected}"
        self._say(f"{Path(self._file).name}: {counts} in {took:.1f} s [{of}]")
        self._tests = []
        return True


def _end(process: subprocess.Popen[bytes], number: signal.Signals, grace_s: float) -> None:
    """Ask it to end; then end it with all that is in its session's process group."""
    process.send_signal(number)
    try:
        process.wait(grace_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _what_pytest_says(log: Path) -> list[str]:
    """Its reports of failures; the last lines where it did not get so far."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    for number, line in enumerate(lines):
        if line.startswith("====") and line.strip("= ") in ("FAILURES", "ERRORS"):
            return lines[number:]
    return lines[-_LAST_LINES:]
