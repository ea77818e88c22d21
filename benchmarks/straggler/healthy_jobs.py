"""Short healthy jobs on a machine that is busy with other things: is anybody accused?

    python benchmarks/straggler/healthy_jobs.py                      # 100 jobs, about an hour
    python benchmarks/straggler/healthy_jobs.py --runs 20 --loads 0,4
    python benchmarks/straggler/healthy_jobs.py --slow --runs 10 --loads 0

Jobs of five kinds (benchmarks/jobs/healthy.py) by turns, each beside so many busy loops of other
processes. Right: the launcher says nothing of a straggler, the report accuses nobody, and the steps
were seen. With --slow one rank of each works 20 % longer from step 20 on, by processor time, so
that a neighbour does not add to it: that rank must be said, and no other. Its ranks run before all
else on the machine (as root): it is to be quiet for them.

Loops run at the priority of the job, all at once and only while it does. The load of the machine
before they start is printed for each job: where other work is on it, it adds to them.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from relkit.errors import RelkitError
from relkit.output import table, write_atomic
from relkit.straggler.transport.history import load

JOB = Path(__file__).resolve().parents[1] / "jobs" / "healthy.py"
LIMIT_S = 240.0
# (name, ranks, options of the job)
KINDS: tuple[tuple[str, int, tuple[str, ...]], ...] = (
    ("2 ranks", 2, ("--kind=data-parallel",)),
    ("4 ranks", 4, ("--kind=data-parallel", "--passes=2")),
    ("loader", 2, ("--kind=loader",)),
    ("saving", 2, ("--kind=saving",)),
    ("logging", 4, ("--kind=logging", "--passes=2")),
    ("pipeline", 2, ("--kind=pipeline",)),
)
# Only jobs whose ranks do equal work have a rank that can be slower than its peers.
SLOW_KINDS = ("2 ranks", "4 ranks", "loader")
# Of the passes that a fault makes longer, so that it is about a fifth of all that a step computes.
SLOW, SLOW_OPTIONS = 0.22, ("--passes=16", "--first")
LOADS = (0, 2, 5, 10, 20)
# A job takes some steps to be seen, and only more than these are judged.
STEPS, MIN_STEPS = 40, 16


@dataclass(frozen=True, slots=True)
class Result:
    """What was said of one job.

    Args:
        kind, load, slow_rank: what was run; -1 = all ranks are healthy.
        before: load of the machine before, mean of the last minute.
        steps: that were seen; said: lines of the launcher; accused: by the report, or why it could
            not be read; right: as it should be.
    """

    kind: str
    load: int
    slow_rank: int
    before: float
    steps: int
    said: tuple[str, ...]
    accused: tuple[str, ...]
    right: bool


@contextmanager
def busy_loops(count: int) -> Iterator[None]:
    """Other processes that want a core each, for as long as it lasts."""
    loops = [
        subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"]) for _ in range(count)
    ]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait(10)


def run_one(
    number: int, load_count: int, *, slow: bool, seconds: float, keep: Path | None
) -> Result:
    """One job, beside so many busy loops."""
    rng = random.Random(number)  # noqa: S311  no secret
    kinds = [kind for kind in KINDS if not slow or kind[0] in SLOW_KINDS]
    name, ranks, options = kinds[number % len(kinds)]
    slow_rank = rng.randrange(ranks) if slow else -1
    with tempfile.TemporaryDirectory() as folder:
        timeline = Path(folder) if keep is None else keep / f"{number:03}-{name.replace(' ', '-')}"
        timeline.mkdir(parents=True, exist_ok=True)
        inject = [f"--inject=slow-compute:rank={slow_rank}:step=20:share={SLOW}"] if slow else []
        command = [
            sys.executable, "-m", "relkit", "launch", "--straggler=warn",
            f"--nproc-per-node={ranks}", f"--timeline-path={timeline}", *inject,
            str(JOB), *options, *(SLOW_OPTIONS if slow else ()), f"--seconds={seconds:g}",
            f"--steps={STEPS}", f"--folder={folder}",
        ]  # fmt: skip
        before = os.getloadavg()[0]
        with busy_loops(load_count):
            code, output = _run(command)
        said = tuple(line for line in output.splitlines() if "relkit: straggler:" in line)
        if code:
            why = (f"it ended with {code}: {output[-500:]}",)
            return Result(name, load_count, slow_rank, before, 0, said, why, False)
        try:
            history = load(timeline / "straggler" / "history.npz")
        except RelkitError as error:
            return Result(name, load_count, slow_rank, before, 0, said, (str(error),), False)
    accused = tuple(
        f"{one.verdict.rank} {one.verdict.cause} {one.verdict.score:.0%} "
        f"({one.verdict.confidence:.2f}) @{one.raised_step}-{one.ended_step}"
        for one in history.accusations
    )
    who = {one.verdict.rank for one in history.accusations}
    good = bool(accused) and who == {slow_rank} if slow else not accused and not said
    right = good and history.steps >= MIN_STEPS
    return Result(name, load_count, slow_rank, before, history.steps, said, accused, right)


def _run(command: Sequence[str]) -> tuple[int, str]:
    """(exit code, all that it has printed)."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    child = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
    )  # fmt: skip
    try:
        output = child.communicate(timeout=LIMIT_S)[0]
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        output = child.communicate()[0]
    return child.returncode, output


def main() -> None:
    """Run all, print what was said, exit with 1 where anything was wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--first", type=int, default=0, help="number of the first run")
    parser.add_argument("--loads", default=",".join(map(str, LOADS)), help="busy loops, by turns")
    parser.add_argument("--seconds", type=float, default=8.0, help="that a job trains for at least")
    parser.add_argument("--slow", action="store_true", help="one rank works 20 %% longer")
    parser.add_argument("--keep", type=Path, help="folder for the histories")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    loads = [int(each) for each in options.loads.split(",")]
    results = []
    for number in range(options.first, options.first + options.runs):
        load_count = loads[number % len(loads)]
        result = run_one(
            number, load_count, slow=options.slow, seconds=options.seconds, keep=options.keep
        )
        results.append(result)
        print(
            f"{'ok ' if result.right else 'BAD'} {number:3} {result.kind:8} load {load_count:2} on "
            f"{result.before:4.1f}  {result.steps:4} steps  {'; '.join(result.accused)}"
            + "".join(f"\n    {line}" for line in result.said),
            flush=True,
        )
    rows = []
    for name in dict.fromkeys(result.kind for result in results):
        mine = [result for result in results if result.kind == name]
        right = sum(result.right for result in mine)
        rows.append([name, str(len(mine)), str(right), str(sum(bool(r.said) for r in mine))])
    print(table(rows, ["kind", "jobs", "right", "with a line"]))
    if options.json is not None:
        write_atomic(options.json, json.dumps([asdict(result) for result in results], indent=1))
    sys.exit(0 if all(result.right for result in results) else 1)


if __name__ == "__main__":
    main()
