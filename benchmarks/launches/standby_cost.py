"""What a job loses while its warm standbys are made beside it, on cores that it uses fully.

Ranks of real compute (benchmarks/jobs/compute.py), one a core, under `relkit launch`. Their steps
are counted from when the first standby is started until all wait, and then for as long again:

    python benchmarks/launches/standby_cost.py
    python benchmarks/launches/standby_cost.py --rounds 5 --not-nice

With --not-nice (as root), the launcher has no CAP_SYS_NICE, as without root: its standbys are made
at the priority of the job.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from bisect import bisect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from relkit.output import table
from relkit.process import procfs

JOB = Path(__file__).resolve().parents[1] / "jobs" / "compute.py"
_LIMIT_S, _POLL_S = 300.0, 0.02
# Memory is given back and the last message is sent around the line that is waited for.
_BETWEEN_S = 1.0
_WARM = "relkit: warm standby: "
_NOT_NICE = ("setpriv", "--bounding-set=-sys_nice")


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one job.

    Args:
        made_s: from the start of the first standby until all wait.
        cpu_s: that each of them has taken until then, CPU seconds.
        steps_per_s: meanwhile; after_per_s: for as long after.
    """

    made_s: float
    cpu_s: float
    steps_per_s: float
    after_per_s: float

    @property
    def slower(self) -> float:
        """Share of the steps that were not made."""
        return 1.0 - self.steps_per_s / self.after_per_s


def main() -> int:
    """Run the rounds and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ranks", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--not-nice", action="store_true", help="as root: without CAP_SYS_NICE")
    options = parser.parse_args()
    costs = []
    for number in range(options.rounds):
        cost = measure(options.ranks, _NOT_NICE if options.not_nice else ())
        costs.append(cost)
        print(
            f"round {number + 1}: made in {cost.made_s:.1f} s, {cost.cpu_s:.1f} CPU s each,"
            f" {cost.slower:.1%} slower meanwhile",
            flush=True,
        )
    rows = [
        [
            f"{statistics.median(each.made_s for each in costs):.1f} s",
            f"{statistics.median(each.cpu_s for each in costs):.1f} s",
            f"{statistics.median(each.steps_per_s for each in costs):.1f}",
            f"{statistics.median(each.after_per_s for each in costs):.1f}",
            f"{statistics.median(each.slower for each in costs):.1%}",
            f"{statistics.median(each.slower * each.made_s for each in costs):.1f} s",
        ]
    ]
    titles = ("made in", "cpu each", "steps/s meanwhile", "steps/s after", "slower", "job loses")
    print(table(rows, titles))
    return 0


def measure(ranks: int, prefix: tuple[str, ...]) -> Cost:
    """One job, until its standbys have waited for as long as they took to be made."""
    with tempfile.TemporaryDirectory(prefix="relkit-standby-cost-") as name:
        folder = Path(name)
        log, ends = folder / "log", folder / "ends"
        argv = [
            *prefix, str(Path(sys.executable).with_name("relkit")), "launch", "--standalone",
            "--timeline-path", str(folder / "timeline"), "--nproc-per-node", str(ranks),
            "--max-restarts", "1", str(JOB), "--steps", str(1 << 30), "--ends", str(ends),
        ]  # fmt: skip
        with log.open("wb") as stream:
            job = subprocess.Popen(
                argv, stdout=stream, stderr=stream, env={**os.environ, "OMP_NUM_THREADS": "1"}
            )
        try:
            wait(lambda: bool(standbys(job.pid)), job, log)
            begun_s = time.monotonic()
            wait(lambda: _WARM in log.read_text(), job, log)
            made_s = time.monotonic() - begun_s
            cpu_s = sum(map(procfs.cpu_s, standbys(job.pid))) / ranks
            after_s = begun_s + made_s + _BETWEEN_S
            wait(lambda: time.monotonic() > after_s + made_s, job, log)
            steps = [float(line) for line in ends.read_text().split("\n")[:-1]]
        finally:
            job.terminate()
            job.wait(_LIMIT_S)

    def per_s(from_s: float) -> float:
        return (bisect(steps, from_s + made_s) - bisect(steps, from_s)) / made_s

    return Cost(made_s, cpu_s, per_s(begun_s), per_s(after_s))


def standbys(launcher: int) -> list[int]:
    """Pids of those that a launcher has."""
    return [pid for pid in procfs.children(launcher) if procfs.is_standby(pid)]


def wait(is_so: Callable[[], bool], job: subprocess.Popen[bytes], log: Path) -> None:
    """Until it is so."""
    until_s = time.monotonic() + _LIMIT_S
    while not is_so():
        if time.monotonic() > until_s or job.poll() is not None:
            raise SystemExit(f"the job does not go on:\n{log.read_text(errors='replace')}")
        time.sleep(_POLL_S)


if __name__ == "__main__":
    sys.exit(main())
