"""Real jobs under `relkit launch`, each with one fault or none: is the right one named, how soon?

usage: python benchmarks/straggler/straggler_runs.py [--cases a,b,c,d,e,f] [--runs 20]
       [--healthy 20] [--jobs 1] [--seed 0] [--json FILE]

  a  2 ranks, each pinned to a core, real compute: compute or input 10 % slower
  b  8 ranks whose compute is a timer, as a device's would be: compute or input 10 % slower
  c  4 ranks of real compute that share two cores: compute 50 % slower
  d  4 hosts in network namespaces of 80 Mbit/s: one interface or one edge at a quarter (root)
  e  4 ranks with a timer: garbage of 200 ms is collected every fourth step
  f  real compute: 2 pinned ranks, one with half of its core, by cgroup or by a busy neighbour, or 4
     that share two cores, one with a quarter of one (of half a core it would use no more anyway)
  n  as f, 4 ranks that share, one at the lowest priority. That costs it little: its peers wait for
     it in collectives, and leave it their cores

The fault begins between steps 15 and 25. Right: that rank (that host, that edge) and that cause
were said within 30 steps of it, and nobody else ever. For e and f the cause is the host. Where
others have a rank's core, as in n and beside the busy neighbour of f, no rank is to be accused: for
f it is a finding of the host, whose ranks wait for a CPU. Healthy runs are of the same jobs, three
times as long; anything said in one is false.
Run it on a machine that does nothing else: a, c and f need the cores to themselves.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from relkit.errors import RelkitError
from relkit.output import table, write_atomic
from relkit.straggler.model import Cause, Subject
from relkit.straggler.present.busy_hosts import busy_hosts
from relkit.straggler.transport.history import History, RaisedVerdict, load
from tests.straggler.hosts_job import run_on_hosts

JOBS = Path(__file__).resolve().parents[1] / "jobs"
WITHIN = 30
LIMIT_S = 150.0
STEPS, HEALTHY_STEPS = 62, 186


@dataclass(frozen=True, slots=True)
class Plan:
    """One run.

    Args:
        case: letter; number: of the run; ranks, job: what is run.
        rank, onset: of the fault, -1 for a healthy run; fault: for --inject, or of the network.
        cause: what must be said of that rank; NOISE where no rank is to be accused.
    """

    case: str
    number: int
    ranks: int
    job: tuple[str, ...]
    rank: int = -1
    onset: int = -1
    fault: str = ""
    cause: Cause = Cause.NOISE

    @property
    def healthy(self) -> bool:
        """Nothing is to be said."""
        return self.rank < 0


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a run.

    Args:
        right: as it should be; steps: from the fault to the verdict, -1 where there was none.
        said: all verdicts, in words.
    """

    case: str
    number: int
    healthy: bool
    fault: str
    right: bool
    steps: int
    said: tuple[str, ...]


def plan(case: str, number: int, healthy: bool, seed: int) -> Plan:
    """What one run of a case is."""
    rng = random.Random(f"{case} {number} {seed}")  # noqa: S311  no secret
    steps = HEALTHY_STEPS if healthy else STEPS
    odd = number % 2 == 1
    third = number % 3
    ranks = {"a": 2, "b": 8, "f": 4 if third == 1 else 2}.get(case, 4)
    job = ["stand_in.py" if case in "bde" else "compute.py", f"--steps={steps}"]
    if case == "a" or (case == "f" and third != 1):
        # In steps of 16 ms the one that gloo's thread takes from its rank would be 6 % of them.
        job += ["--pinned", "--products=144"]
    if case == "d":
        job += ["--step-ms=40", "--layers=2", "--elements=65536"]
    if healthy:
        return Plan(case, number, ranks, tuple(job))
    rank, onset = rng.randrange(ranks), rng.randint(15, 25)
    at = f"rank={rank}:step={onset}"
    timer = ":kind=timer" if case == "b" else ""
    slow, cause = {
        "a": ("slow-input", Cause.INPUT) if odd else ("slow-compute", Cause.COMPUTE),
        "b": ("slow-input", Cause.INPUT) if odd else ("slow-compute", Cause.COMPUTE),
        "c": ("slow-compute", Cause.COMPUTE),
        "d": ("edge" if odd else "interface", Cause.NETWORK),
        "e": ("gc", Cause.HOST),
        "f": ("neighbour", Cause.NOISE) if third == 2 else ("throttle", Cause.HOST),
        "n": ("throttle", Cause.NOISE),
    }[case]
    values = {
        "slow-compute": f":share={0.5 if case == 'c' else 0.1}{timer}",
        "slow-input": ":share=0.1",
        "gc": ":ms=200:every=4",
        "throttle": (
            ":kind=nice" if case == "n" else f":kind=cgroup:share={0.25 if ranks == 4 else 0.5}"
        ),
    }.get(slow, "")
    return Plan(case, number, ranks, tuple(job), rank, onset, f"{slow}:{at}{values}", cause)


def run_one(todo: Plan) -> Result:
    """Run it, and judge what was said."""
    with tempfile.TemporaryDirectory() as folder:
        timeline = Path(folder)
        kept = timeline / "straggler" / "history.npz"
        if todo.case == "d":
            run_on_hosts(timeline, JOBS, todo.job, todo.rank, todo.onset, todo.fault, LIMIT_S)
        else:
            inject = ["--inject", todo.fault] if todo.fault else []
            command = [
                sys.executable, "-m", "relkit", "launch", "--straggler=warn",
                f"--nproc-per-node={todo.ranks}", f"--timeline-path={timeline}", *inject,
                str(JOBS / todo.job[0]), *todo.job[1:],
            ]  # fmt: skip
            _run(command, timeline / "output")
        try:
            history = load(kept)
        except RelkitError as error:
            return Result(todo.case, todo.number, todo.healthy, todo.fault, False, -1,
                          (str(error),))  # fmt: skip
    return judge(todo, history)


def judge(todo: Plan, history: History) -> Result:
    """Was the right one named in time, and nobody else?"""
    raised = history.accusations
    said = tuple(_words(one) for one in raised)
    if todo.healthy:
        # A job that nobody looked at is no proof of silence.
        good = not raised and history.steps >= HEALTHY_STEPS // 2
        return Result(todo.case, todo.number, True, "", good, -1, said)
    if todo.cause is Cause.NOISE:
        waits = any(todo.rank in host.ranks for host in busy_hosts(history))
        good = not raised and (waits or todo.case == "n")
        return Result(todo.case, todo.number, False, todo.fault, good, -1, said)
    hits = [one for one in raised if _is_it(todo, one)]
    steps = min((one.raised_step - todo.onset for one in hits), default=-1)
    # What runs before a step's first collective is in the step before.
    right = bool(hits) and len(hits) == len(raised) and -1 <= steps <= WITHIN
    return Result(todo.case, todo.number, False, todo.fault, right, steps, said)


def _is_it(todo: Plan, one: RaisedVerdict) -> bool:
    verdict = one.verdict
    if verdict.cause is not todo.cause:
        return False
    if todo.case != "d":
        return verdict.subject is Subject.RANK and verdict.rank == todo.rank
    here, there = f"h{todo.rank + 1}", f"h{(todo.rank + 1) % 4 + 1}"
    if todo.fault.startswith("edge"):
        return set(verdict.ends) == {here, there}
    return verdict.ends == (here,) or (verdict.subject is Subject.LINK and here in verdict.ends)


def _words(one: RaisedVerdict) -> str:
    verdict = one.verdict
    who = f"rank {verdict.rank}" if verdict.rank >= 0 else "-".join(verdict.ends)
    return f"{who} {verdict.cause} {verdict.score:.0%} @{one.raised_step}"


def _run(command: Sequence[str], output: Path) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with output.open("wb") as stream:
        child = subprocess.Popen(
            command, env=environment, stdout=stream, stderr=stream, start_new_session=True
        )
        try:
            child.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()


def main() -> None:
    """Run all, print a line for each and a table at the end."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", default="a,b,c,d,e,f")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--healthy", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    todo = [
        plan(case, number, healthy, options.seed)
        for case in options.cases.split(",")
        for healthy, count in ((False, options.runs), (True, options.healthy))
        for number in range(count)
    ]
    done: list[Result] = []
    with ThreadPoolExecutor(options.jobs) as pool:
        for result in pool.map(run_one, todo):
            done.append(result)
            mark = "right" if result.right else "WRONG"
            what = "healthy" if result.healthy else result.fault
            print(f"{result.case} {result.number:2d} {mark} {result.steps:3d} {what}: "
                  f"{', '.join(result.said) or 'nothing said'}", flush=True)  # fmt: skip
    rows = []
    for case in options.cases.split(","):
        for healthy in (False, True):
            some = [r for r in done if r.case == case and r.healthy is healthy]
            if not some:
                continue
            right = sum(r.right for r in some)
            steps = [r.steps for r in some if r.right and not r.healthy]
            middle = f"{statistics.median(steps):.0f}" if steps else ""
            kind = "healthy" if healthy else "fault"
            rows.append((case, kind, f"{right}/{len(some)}", middle))
    print(table(rows, ("case", "runs", "right", "median steps to the verdict")))
    if options.json is not None:
        write_atomic(options.json, json.dumps([asdict(r) for r in done], indent=1) + "\n")


if __name__ == "__main__":
    main()
