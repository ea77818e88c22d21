"""Run the demo many times, faulty and healthy, and count how often the verdict is right.

    python tools/stress.py --runs 20 --faults all --timeout 10 --jobs 2

Exit code 0 when every run was right, 1 when one was not, with the path of its report.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from relkit import demo
from relkit.faults import FAULTS
from relkit.output import table


@dataclass(frozen=True, slots=True)
class Run:
    """One finished run."""

    fault: str
    number: int
    folder: Path
    outcome: demo.DemoResult


def plan(faults: list[str], runs: int, kinds: bool) -> Iterator[tuple[str, str, int]]:
    """(fault, kind, number) of all runs, the faults interleaved so that load is alike for all."""
    for number in range(runs):
        for fault in faults:
            known = FAULTS[fault][1] if fault in FAULTS and kinds else ()
            yield fault, known[number % len(known)] if known else "", number


def run_one(fault: str, kind: str, number: int, options: argparse.Namespace, root: Path) -> Run:
    """One demo in a folder of its own; its output goes into `output` there."""
    folder = root / f"{fault}-{number:03d}"
    folder.mkdir(mode=0o700)
    wanted = demo.Demo(
        fault=fault,
        kind=kind,
        processes=options.nproc,
        # Every rank gets its turn, rank 0 included.
        rank=number % options.nproc,
        hang_timeout_s=options.timeout,
        timeline=folder,
        limit_s=options.limit,
    )
    with (folder / "output").open("wb") as stream:
        outcome = demo.run(wanted, environ=os.environ, output=stream.fileno())
    return Run(fault, number, folder, outcome)


def summary(runs: list[Run], faults: list[str]) -> str:
    """One line a fault."""
    rows = []
    for fault in faults:
        mine = [run for run in runs if run.fault == fault]
        right = sum(run.outcome.right for run in mine)
        times = sorted(run.outcome.duration_s for run in mine) or [0.0]
        wrong = [str(run.folder) for run in mine if not run.outcome.right]
        rows.append(
            (
                fault,
                f"{right}/{len(mine)}",
                f"{statistics.median(times):.1f}",
                f"{times[-1]:.1f}",
                wrong[0] if wrong else "-",
            )
        )
    return table(rows, ("fault", "right", "median_s", "longest_s", "first wrong run"))


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=20, help="runs a fault")
    parser.add_argument("--faults", default="all", help="names by commas, `all`, or `none`")
    parser.add_argument("--timeout", type=float, default=10.0, help="hang timeout, s")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--nproc", type=int, default=4, help="ranks a run")
    parser.add_argument("--limit", type=float, default=180.0, help="time for one run, s")
    parser.add_argument("--kinds", action="store_true", help="vary the kinds of each fault too")
    parser.add_argument("--keep", action="store_true", help="keep the folders of right runs too")
    parser.add_argument("--folder", type=Path, help="where the runs go; a new temporary one")
    return parser.parse_args()


def main() -> int:
    """Run them all."""
    options = parse_arguments()
    every = [*FAULTS, demo.NO_FAULT]
    faults = every if options.faults == "all" else options.faults.split(",")
    unknown = [fault for fault in faults if fault not in every]
    if unknown:
        print(f"no fault is called {unknown[0]!r}; there are {', '.join(every)}", file=sys.stderr)
        return 2
    root = options.folder or Path(tempfile.mkdtemp(prefix="relkit-stress-"))
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    done: list[Run] = []
    planned = list(plan(faults, options.runs, options.kinds))
    with ThreadPoolExecutor(options.jobs) as pool:
        futures = [pool.submit(run_one, *item, options, root) for item in planned]
        for future in as_completed(futures):
            run = future.result()
            done.append(run)
            verdict = "right" if run.outcome.right else f"WRONG  {run.folder}"
            named = run.outcome.culprits
            print(
                f"[{len(done)}/{len(planned)}] {run.fault} #{run.number}: injected "
                f"{run.outcome.guilty}, named {named}, {run.outcome.duration_s:.1f} s  {verdict}",
                flush=True,
            )
            if run.outcome.right and not options.keep:
                shutil.rmtree(run.folder, ignore_errors=True)
    print("\n" + summary(done, faults))
    return 0 if all(run.outcome.right for run in done) else 1


if __name__ == "__main__":
    sys.exit(main())
