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
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from relkit.errors import EXIT_INTERRUPTED
from relkit.process.interruptible_wait import result_of
from tools.mutants import choose, verdict
from tools.mutants.model import Break, Outcome, Result
from tools.mutants.nearest_tests import NearestTests
from tools.mutants.promise_table import TABLE
from tools.mutants.promises import NotThere, broken
from tools.mutants.tree import HEAVY, LIGHT, ROOT, Tree
from tools.mutants.trial import Soundness, attempt

_EPILOG = """\
examples: python -m tools.mutants relkit/hang            all breaks of a folder
          python -m tools.mutants                        ... of the lines changed since main
          python -m tools.mutants --sample 100 --seed 7  as many of any lines
          python -m tools.mutants --promises slots       named promises whose line has this

exit code: 0 where each break is noticed or changes nothing, or, of a sample, where no room
notices fewer than before; else 1; 130 after Ctrl-C
"""


def main(argv: Sequence[str]) -> int:
    """Try the breaks that are asked for."""
    asked = _parser().parse_args(argv)
    # What `kill` sends ends the tests as Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    breaks = _chosen(asked)
    breaks = [change for change in breaks if re.search(asked.match, change.title)]
    if asked.part:
        breaks = breaks[asked.part[0] - 1 :: asked.part[1]]
    if not breaks:
        print("nothing to break", file=sys.stderr)
        return 0
    build = ROOT / "build"
    build.mkdir(exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(prefix="mutants-", dir=build) as folder:
            results = _try_all(breaks, asked, Path(folder))
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return EXIT_INTERRUPTED
    print(verdict.summary(ROOT, results))
    return _judge(results, asked) if asked.sample else _all_noticed(results)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.mutants",
        description=__doc__,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("paths", nargs="*", metavar="PATH", help="files and folders to break")
    parser.add_argument("--base", default="", help="commit that the changed lines are found by")
    parser.add_argument("--sample", type=int, default=0, metavar="N", help="only N, at random")
    parser.add_argument("--seed", type=int, default=0, help="the same N for the same number")
    parser.add_argument(
        "--promises", nargs="?", const="", metavar="TEXT", help="only the named promises"
    )
    parser.add_argument("--part", type=_part, default=None, metavar="K/N", help="each Nth only")
    parser.add_argument("--record", action="store_true", help="add a sample to the ratchet")
    parser.add_argument(
        "--heavy", action="store_true", help="then also tests that start jobs, compilers, daemons"
    )
    parser.add_argument("--match", default="", help="only breaks whose line has this pattern")
    parser.add_argument("--list", action="store_true", help="only say what would be broken")
    parser.add_argument("--jobs", type=int, default=2, choices=(1, 2), help="at the same time")
    parser.add_argument(
        "--limit", type=float, default=300.0, metavar="SECONDS", help="for the tests of a break"
    )
    return parser


def _part(text: str) -> tuple[int, int]:
    number, _, parts = text.partition("/")
    return int(number), int(parts)


def _chosen(asked: argparse.Namespace) -> list[Break]:
    if asked.promises is not None:
        return _promised(asked.promises)
    files = choose.python_files(ROOT, asked.paths or choose.TOPS)
    if asked.sample:
        return list(choose.at_random(ROOT, asked.sample, asked.seed, files))
    if asked.paths and not asked.base:
        return list(choose.in_files(ROOT, files))
    return list(choose.on_changed_lines(ROOT, asked.base or choose.default_base(ROOT), files))


def _promised(text: str) -> list[Break]:
    found = []
    for promise in TABLE:
        if text in f"{promise.file} {promise.function} {promise.words}":
            try:
                found.append(broken(ROOT, promise))
            except (NotThere, OSError) as error:
                found.append(Break(promise.file, promise.function, 0, "", "", "", (), repr(error)))
    return found


def _try_all(breaks: Sequence[Break], asked: argparse.Namespace, folder: Path) -> list[Result]:
    known = verdict.explanations(verdict.EQUIVALENT.read_text(encoding="utf-8"))
    nearest, soundness = NearestTests(ROOT), Soundness()
    results: list[Result] = []
    stopped = threading.Event()
    free: queue.SimpleQueue[Tree] = queue.SimpleQueue()

    def tried(change: Break) -> Result:
        if (why := known.get(verdict.name_of(change))) is not None:
            return Result(change, Outcome.EXPLAINED, why)
        if asked.list or not change.source:
            return Result(change, Outcome.UNTRIED, "only listed" if asked.list else "it has gone")
        tree = free.get()
        try:
            if change.tests:
                return attempt(tree, change, change.tests, soundness, asked.limit, "")
            light = nearest.of(change.file)
            result = attempt(tree, change, light, soundness, asked.limit, LIGHT)
            if asked.heavy and result.outcome is Outcome.SURVIVED:
                heavy = nearest.heavy(change.file)
                result = attempt(tree, change, heavy, soundness, asked.limit, HEAVY)
            return result
        finally:
            free.put(tree)

    def one(change: Break) -> None:
        result = tried(change)
        results.append(result)
        line = f"[{len(results)}/{len(breaks)}] {result.time_s:5.1f} s  {result.outcome.value}"
        print(f"{line}  {change.title}\n    {result.why}", flush=True)

    for number in range(0 if asked.list else min(asked.jobs, len(breaks))):
        free.put(Tree.copied_to(folder / f"tree{number}", stopped))
    with ThreadPoolExecutor(asked.jobs) as pool:
        futures = [pool.submit(one, change) for change in breaks]
        try:
            for future in futures:
                result_of(future)
        except KeyboardInterrupt:
            stopped.set()
            pool.shutdown(cancel_futures=True)
            raise
        finally:
            while not free.empty():
                free.get().pytests.close()
    return results


def _judge(results: Sequence[Result], asked: argparse.Namespace) -> int:
    now = verdict.shares(results)
    before = verdict.read_ratchet(verdict.RATCHET.read_text(encoding="utf-8"))
    if asked.record:
        verdict.RATCHET.write_text(verdict.with_more(before, now), encoding="utf-8")
    worse = verdict.worse_rooms(now, before)
    for room in worse:
        print(f"{room} notices fewer breaks than before: {now[room]}, {before[room]}")
    return 1 if worse else 0


def _all_noticed(results: Sequence[Result]) -> int:
    return 0 if all(r.is_noticed or r.outcome is Outcome.EXPLAINED for r in results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
