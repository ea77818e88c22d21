"""Try a break: run its tests, the nearest first, until one of them fails because of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tools.mutants.model import Break, Outcome, Result
from tools.mutants.pytest_server import NoEnd
from tools.mutants.tree import BadBreak, Failure, Tree

# The nearest files in one process, then more of them at a time: most breaks are noticed at once.
_FIRST_FILES = 4
_UNBROKEN_S = 300.0


@dataclass
class Soundness:
    """Which tests pass without any break; what fails anyhow has noticed nothing.

    Args:
        known: test -> whether it passes.
    """

    known: dict[str, bool] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def is_sound(self, test: str, tree: Tree) -> bool:
        """Run a test in a tree without a break, once."""
        with self.lock:
            if test in self.known:
                return self.known[test]
        options = [] if "::" in test else ["--collect-only"]
        try:
            passes = tree.first_failure([*options, test], _UNBROKEN_S) is None
        except (BadBreak, NoEnd):
            passes = False
        with self.lock:
            self.known[test] = passes
        return passes

    def unsound(self) -> list[str]:
        """Tests that are left out from now on."""
        with self.lock:
            return [test for test, passes in self.known.items() if not passes]


def attempt(
    tree: Tree,
    change: Break,
    tests: Sequence[str],
    soundness: Soundness,
    limit_s: float,
    marks: str,
) -> Result:
    """Apply a break, run tests until one notices it, and take it back.

    Args:
        tree: nothing else uses it meanwhile.
        tests: files or single tests, the most likely first.
        soundness: of tests that were run before.
        limit_s: for all of the tests; those that it leaves no time for are not run.
        marks: as Tree.first_failure has them.
    """
    began_s = time.monotonic()

    def result(outcome: Outcome, why: str = "") -> Result:
        return Result(change, outcome, why, time.monotonic() - began_s)

    try:
        failure = _first(tree, change, tests, soundness, began_s + limit_s, marks)
    except NoEnd as error:
        return result(Outcome.SURVIVED, f"not all tests were run: {error}")
    except BadBreak as error:
        return result(Outcome.UNTRIED, str(error))
    if failure is None:
        return result(Outcome.SURVIVED, f"{len(tests)} test files pass")
    return result(Outcome.ENDLESS if failure.is_endless else Outcome.NOTICED, failure.test)


def _first(
    tree: Tree,
    change: Break,
    tests: Sequence[str],
    soundness: Soundness,
    end_s: float,
    marks: str,
) -> Failure | None:
    for batch in batches(tests):
        while True:
            left_out = [f"--deselect={test}" for test in soundness.unsound() if "::" in test]
            files = [test for test in batch if soundness.known.get(test, True)]
            if not files:
                break
            with tree.broken(change):
                failure = tree.first_failure([*left_out, *files], end_s - time.monotonic(), marks)
            if failure is None:
                break
            if soundness.is_sound(failure.test, tree):
                return failure
    return None


def batches(tests: Sequence[str]) -> Iterator[Sequence[str]]:
    """Each is twice as long as the one before."""
    size, first = _FIRST_FILES, 0
    while first < len(tests):
        yield tests[first : first + size]
        first, size = first + size, 2 * size
