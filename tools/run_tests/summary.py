"""The end of `make test`: times, the slowest tests, what failed, and one closing line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from tools.run_tests.results import Problem, UnitResult

_SLOWEST = 10
# Of an error's lines: what was asserted comes first, a program's own traceback ends with its error,
# and behind it may stand all that a launcher says of a failed rank. It is all that a CI log tells.
_FIRST_LINES, _LAST_LINES = 5, 60
_WIDTH = 200


def summary(
    results: Sequence[UnitResult],
    lanes: dict[str, float],
    others: Sequence[Problem],
    seconds: float,
) -> list[str]:
    """All lines of it.

    Args:
        results: every unit that ran, in the order in which they ended.
        lanes: each lane's name and wall seconds.
        others: problems that belong to no unit's tests.
        seconds: of the whole run.
    """
    lines = ["", "time of each lane:"]
    for lane, took in lanes.items():
        units = [_of_unit(result) for result in results if result.lane == lane]
        lines.append(f"  {lane:7} {took / 60:5.1f} min: {', '.join(units)}")
    durations = [(took, test) for r in results for test, took in r.durations.items()]
    lines += _most("slowest tests", durations)
    # Of a test that ended with its process that is not known.
    spent = [(cpu_s, test) for r in results for test, cpu_s in r.cpu_of.items() if cpu_s >= 0]
    lines += _most("tests of most CPU", spent)
    problems = [*(p for r in results for p in r.problems), *others]
    if problems:
        lines += ["", "failed:", *_failed(problems)]
    return [*lines, "", closing_line(results, problems, seconds)]


def _most(what: str, tests: Sequence[tuple[float, str]]) -> list[str]:
    """Those that took most of something, s."""
    most = sorted(tests)[: -_SLOWEST - 1 : -1]
    rows = [f"  {took:6.1f} s  {test}" for took, test in most]
    return ["", f"{len(most)} {what}:", *rows] if most else []


def _failed(problems: Sequence[Problem]) -> Iterator[str]:
    """Each with its error; neighbours that failed with the same one have it below the last."""
    for error, same in groupby(problems, key=lambda problem: problem.error):
        yield from (f"  [{problem.lane}] {problem.what}" for problem in same)
        lines = error.splitlines()
        if len(lines) > _FIRST_LINES + _LAST_LINES:
            lines = [*lines[:_FIRST_LINES], "...", *lines[-_LAST_LINES:]]
        yield from (f"      {line[:_WIDTH]}" for line in lines)


def _of_unit(result: UnitResult) -> str:
    """Its wall time, and how much CPU it took in that time: below 100 %, it also waited."""
    share = ""
    if result.cpu_s is not None and result.seconds > 0:
        share = f" (CPU {100 * result.cpu_s / result.seconds:.0f} %)"
    return f"{result.unit} {result.seconds:.0f} s{share}"


def closing_line(results: Sequence[UnitResult], problems: Sequence[Problem], seconds: float) -> str:
    """As `pytest -q` ends."""
    tests = {p.what.split(" (")[0] for p in problems if p.is_test}
    counts = {
        "failed": len(tests),
        "passed": sum(r.count("passed") for r in results),
        "skipped": sum(r.count("skipped") for r in results if not r.problems),
        "error": sum(1 for p in problems if not p.is_test),
    }
    if counts["error"] > 1:
        counts["errors"] = counts.pop("error")
    parts = [f"{count} {word}" for word, count in counts.items() if count]
    return f"{', '.join(parts) or 'no tests ran'} in {seconds:.2f}s"
