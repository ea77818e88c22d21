"""Break relkit in one place after the other: python -m tools.mutants [OPTIONS] [AREA ...].

Exit code 0 where a test notices each break, or a line beside it says why none can; else 1.
"""

from __future__ import annotations

import argparse
import queue
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tools.mutants.breaks import all_breaks
from tools.mutants.model import Break
from tools.mutants.tree import ROOT, BadBreak, Tree

_LIMIT_S = 600.0


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one break."""

    change: Break
    noticed_by: str
    trouble: str
    time_s: float

    @property
    def is_good(self) -> bool:
        """Noticed, or explained; and no explanation where none is needed."""
        return not self.trouble and bool(self.noticed_by) is not bool(self.change.survives)

    @property
    def word(self) -> str:
        """For the terminal."""
        if self.trouble:
            return "cannot be tried"
        if self.noticed_by:
            return "noticed, although it is said to survive" if self.change.survives else "noticed"
        return "survives, explained" if self.change.survives else "SURVIVES"


def main(argv: Sequence[str]) -> int:
    """Try all breaks of the areas that are named, or of all."""
    asked = _arguments(argv)
    areas = all_breaks()
    breaks = [one for name in asked.areas or areas for one in areas[name]]
    if asked.match:
        breaks = [one for one in breaks if asked.match in one.title]
    trees: queue.SimpleQueue[Tree] = queue.SimpleQueue()
    for number in range(min(asked.jobs, len(breaks))):
        trees.put(Tree.copied_to(ROOT / "build" / "mutants" / f"tree{number}"))
    if not asked.skip_whole:
        tests = sorted({test for one in breaks for test in one.tests})
        print(f"{len(breaks)} breaks; first, the tests without any", flush=True)
        tree = trees.get()
        if failure := tree.first_failure(tests, 10 * _LIMIT_S):
            print(f"fails as it is, mend that first: {failure}", file=sys.stderr)
            return 1
        trees.put(tree)
    results = _try_all(breaks, trees, asked.jobs)
    print(_summary(results))
    return 0 if all(result.is_good for result in results) else 1


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.mutants", description=__doc__)
    parser.add_argument("areas", nargs="*", metavar="AREA", help=", ".join(all_breaks()))
    parser.add_argument("--match", default="", help="only breaks in whose line this stands")
    parser.add_argument("--jobs", type=int, default=2, help="at the same time")
    parser.add_argument(
        "--skip-whole", action="store_true", help="do not run the tests without a break first"
    )
    asked = parser.parse_args(argv)
    if unknown := set(asked.areas) - set(all_breaks()):
        parser.error(f"no area {', '.join(sorted(unknown))}")
    return asked


def _try_all(breaks: Sequence[Break], trees: queue.SimpleQueue[Tree], jobs: int) -> list[Result]:
    results: list[Result] = []

    def attempt(change: Break) -> None:
        tree = trees.get()
        try:
            result = _try(change, tree)
        finally:
            trees.put(tree)
        results.append(result)
        line = f"[{len(results)}/{len(breaks)}] {result.time_s:5.1f} s  {result.word}"
        print(f"{line}  {change.title}", flush=True)
        if result.trouble or result.noticed_by:
            print(f"    {result.trouble or result.noticed_by}", flush=True)

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(attempt, breaks))
    return results


def _try(change: Break, tree: Tree) -> Result:
    began_s = time.monotonic()
    noticed_by, trouble = "", ""
    try:
        with tree.broken(change):
            noticed_by = tree.first_failure(change.tests, _LIMIT_S)
    except BadBreak as error:
        trouble = str(error)
    return Result(change, noticed_by, trouble, time.monotonic() - began_s)


def _summary(results: Sequence[Result]) -> str:
    survivors = [result for result in results if not result.noticed_by and not result.trouble]
    lines = [
        f"\n{len(results)} breaks: {sum(bool(result.noticed_by) for result in results)} noticed,"
        f" {len(survivors)} survive, {sum(bool(result.trouble) for result in results)} could not"
        " be tried"
    ]
    for result in survivors:
        lines += [f"  {result.change.title}", f"    {result.change.survives or 'NOT EXPLAINED'}"]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
