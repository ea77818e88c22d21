"""Break relkit in one place after the other, and see whether a test notices each break.

Everything happens in copies of the repository below build/, which are removed at the end.
"""

from __future__ import annotations

import argparse
import queue
import re
import signal
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from relkit.errors import EXIT_INTERRUPTED
from relkit.process.interruptible_wait import result_of
from tools.mutants.breaks import all_breaks
from tools.mutants.model import Break, Result
from tools.mutants.tree import ROOT, BadBreak, NoEnd, Tree

_UNBROKEN_S = 6000.0
_EPILOG = """\
examples: python -m tools.mutants --jobs 1 --match order_queue ttp
          python -m tools.mutants --share 2/8

exit code: 0 where each break is noticed, or is listed with the reason why no test can notice it;
else 1; 130 after Ctrl-C
"""


def main(argv: Sequence[str]) -> int:
    """Try the breaks that are asked for."""
    parser = _parser()
    asked = parser.parse_args(argv)
    areas = all_breaks()
    if unknown := set(asked.areas) - set(areas):
        parser.error(f"no area {', '.join(sorted(unknown))}")
    chosen = [
        change
        for area in asked.areas or areas
        for change in areas[area]
        if asked.match in change.title
    ]
    if not chosen:
        parser.error(f"no break has {asked.match!r} in its line")
    if not (breaks := part(chosen, asked.share)):
        parser.error(f"--share: there are only {len(chosen)} breaks")
    if asked.jobs < 1:
        parser.error("--jobs: at least 1")
    # What `kill` sends ends the tests as Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    build = ROOT / "build"
    build.mkdir(exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(prefix="mutants-", dir=build) as folder:
            return _run(breaks, asked.jobs, Path(folder), is_tried_whole=not asked.skip_whole)
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return EXIT_INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.mutants",
        description=__doc__,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("areas", nargs="*", metavar="AREA", help=", ".join(all_breaks()))
    parser.add_argument("--match", default="", help="only breaks with this text in their line")
    parser.add_argument(
        "--share",
        type=read_share,
        default=(1, 1),
        metavar="K/N",
        help="only the Kth of N equal parts, which has some of every area",
    )
    parser.add_argument("--jobs", type=int, default=2, help="breaks tried at the same time")
    parser.add_argument(
        "--skip-whole", action="store_true", help="do not run the tests without a break first"
    )
    return parser


def read_share(text: str) -> tuple[int, int]:
    """Read "2/8".

    Raises:
        argparse.ArgumentTypeError: it is something else.
    """
    match = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise argparse.ArgumentTypeError(f"{text!r} is no part such as 2/8")
    return int(match[1]), int(match[2])


def part(breaks: Sequence[Break], share: tuple[int, int]) -> Sequence[Break]:
    """One of N equal parts, which has some of every area: those at the places K, K + N, ..."""
    number, parts = share
    return breaks[number - 1 :: parts]


def _run(breaks: Sequence[Break], jobs: int, folder: Path, *, is_tried_whole: bool) -> int:
    trees = [Tree.copied_to(folder / f"tree{n}") for n in range(min(jobs, len(breaks)))]
    if is_tried_whole:
        print(f"{len(breaks)} breaks; first, their tests without any break", flush=True)
        try:
            failure = trees[0].first_failure(
                sorted({test for change in breaks for test in change.tests}), _UNBROKEN_S
            )
        except (BadBreak, NoEnd) as error:
            failure = str(error)
        if failure:
            print(f"fails without a break, mend that first: {failure}", file=sys.stderr)
            return 1
    results = _try_all(breaks, trees)
    print(summary(results))
    return 0 if all(result.is_good for result in results) else 1


def _try_all(breaks: Sequence[Break], trees: Sequence[Tree]) -> list[Result]:
    results: list[Result] = []
    free: queue.SimpleQueue[Tree] = queue.SimpleQueue()
    for tree in trees:
        free.put(tree)

    def attempt(change: Break) -> None:
        tree = free.get()
        try:
            result = tree.attempt(change)
        finally:
            free.put(tree)
        results.append(result)
        line = f"[{len(results)}/{len(breaks)}] {result.time_s:5.1f} s  {result.word}"
        print(f"{line}  {change.title}", flush=True)
        if why := result.trouble or result.noticed_by:
            print(f"    {why}", flush=True)

    with ThreadPoolExecutor(len(trees)) as pool:
        futures = [pool.submit(attempt, change) for change in breaks]
        try:
            for future in futures:
                result_of(future)
        except KeyboardInterrupt:
            for tree in trees:
                tree.stopped.set()
            pool.shutdown(cancel_futures=True)
            raise
    return results


def summary(results: Sequence[Result]) -> str:
    """How many of each kind, and those that survive."""
    survivors = [result for result in results if result.is_survivor]
    lines = [
        f"\n{len(results)} breaks: {sum(bool(result.noticed_by) for result in results)} noticed,"
        f" {len(survivors)} survive, {sum(result.timed_out for result in results)} timed out,"
        f" {sum(bool(result.trouble) for result in results)} cannot be tried"
    ]
    for result in survivors:
        lines += [f"  {result.change.title}", f"    {result.change.survives or 'NOT EXPLAINED'}"]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
