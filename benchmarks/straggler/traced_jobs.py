"""Real jobs traced by torch.profiler, some with a slow rank that DDP hides: is it named?

    python benchmarks/straggler/traced_jobs.py                    # of each kind 20 slow, 20 healthy
    python benchmarks/straggler/traced_jobs.py --runs 4 --kinds pause

Jobs of two to four ranks (benchmarks/jobs/traced_ddp.py), on gloo. In a slow one a rank that is
drawn has half as much again to do in its backward pass: a pause, as a wait for a device, or
products of matrices. Right: of a slow job that rank is named, as by `relkit straggler report` of
its folder, and no other; of a healthy one nobody. How far the mean lengths of the ranks' steps are
apart is printed: by these they are all the same.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from relkit.output import table
from relkit.straggler.present.measured_report import measured_report
from relkit.straggler.score.measured_job import judge
from relkit.straggler.traces.sources import read_steps

ROOT = Path(__file__).resolve().parents[2]
JOB = ROOT / "benchmarks" / "jobs" / "traced_ddp.py"
LIMIT_S = 580.0
RANKS = (2, 3, 4)
# Of each kind, how much a rank has to do and how much more the slow one.
AMOUNTS = {"pause": (40, 20), "compute": (60, 30)}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was said of one job.

    Args:
        ranks: of the job; slow: which one is, -1 = none. named: in findings that accuse;
            suspected: in those that do not.
        spread: of the ranks' mean steps, as a share.
    """

    ranks: int
    slow: int
    named: tuple[int, ...]
    suspected: tuple[int, ...]
    spread: float

    @property
    def is_right(self) -> bool:
        """The slow rank was named, and nobody else."""
        return self.named == ((self.slow,) if self.slow >= 0 else ())


def run_jobs(folder: Path, ranks: int, slow: Sequence[int], kind: str, steps: int = 12) -> None:
    """Trace jobs, one after the other in the same processes: `folder/job0` and so on."""
    amount, more = AMOUNTS[kind]
    command = [
        sys.executable, "-m", "benchmarks.jobs.traced_ddp", str(folder), f"--kind={kind}",
        f"--slow={','.join(map(str, slow))}", f"--amount={amount}", f"--more={more}",
        f"--steps={steps}",
    ]  # fmt: skip
    base = {**os.environ, "WORLD_SIZE": str(ranks), "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    processes = [
        subprocess.Popen(command, env=base | {"RANK": str(rank)}, stdout=subprocess.DEVNULL)
        for rank in range(ranks)
    ]
    try:
        for process in processes:
            assert process.wait(LIMIT_S) == 0
    finally:
        for process in processes:
            process.kill()
            process.wait()


def outcomes(folder: Path, ranks: int, slow: Sequence[int]) -> Iterator[Outcome]:
    """What is said of each of the jobs of run_jobs()."""
    for number, culprit in enumerate(slow):
        measured = read_steps([folder / f"job{number}"])
        judged = judge(measured)
        report = measured_report(measured, judged)
        named = tuple(row["rank"] for row in report.facts["stragglers"])
        means = [
            np.mean(json.loads((folder / f"lengths{number}.{rank}.txt").read_text()))
            for rank in range(ranks)
        ]
        spread = float(max(means) / min(means) - 1.0)
        yield Outcome(ranks, culprit, named, tuple(report.facts["suspects"]), spread)


def main() -> int:
    """Run them; 0 where all is right."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=20, help="of slow jobs, and of healthy ones")
    parser.add_argument("--kinds", default="pause,compute")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="put the traces there")
    options = parser.parse_args()
    chance = random.Random(options.seed)  # noqa: S311
    rows, is_right = [], True
    for kind in options.kinds.split(","):
        for ranks in RANKS:
            count = len(range(RANKS.index(ranks), options.runs, len(RANKS)))
            slow = [chance.randrange(ranks) for _ in range(count)] + [-1] * count
            with tempfile.TemporaryDirectory() as made:
                folder = (options.keep or Path(made)) / f"{kind}{ranks}"
                folder.mkdir(parents=True)
                run_jobs(folder, ranks, slow, kind)
                for outcome in outcomes(folder, ranks, slow):
                    print(kind, outcome, flush=True)
                    rows.append((kind, outcome))
    listed = []
    for kind in options.kinds.split(","):
        for is_slow in (True, False):
            mine = [each for of, each in rows if of == kind and (each.slow >= 0) == is_slow]
            right = sum(each.is_right for each in mine)
            innocent = sum(bool(set(each.named) - {each.slow}) for each in mine)
            spread = float(np.median([each.spread for each in mine]))
            is_right &= right == len(mine)
            listed.append([
                kind, "slow" if is_slow else "healthy", f"{right} of {len(mine)}", f"{innocent}",
                f"{100 * spread:.2g} %",
            ])  # fmt: skip
    print(table(listed, ["work", "jobs", "right", "innocent named", "spread of lengths"]))
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
