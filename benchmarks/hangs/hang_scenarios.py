"""Real jobs that hang in many ways: is the right rank named, with the right fault, and nobody else?

    python benchmarks/hangs/hang_scenarios.py --runs 10 -o hangs.json
    python benchmarks/hangs/hang_scenarios.py --runs 10 -o hangs.json --resume
    python benchmarks/hangs/hang_scenarios.py --only 1f1b: --runs 2 --keep /tmp/wrong

Each run is a job of 4 or 8 gloo ranks under `relkit launch`, with the fault on a rank, in a step
and micro-batch drawn at random. A run is right if exactly the ranks at fault are named, each with a
category that the list (hang_scenario_list.py) says; a job that is only slow must end well, without
a word. Exit code 1 where fewer than 98 % of the runs are right.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.hangs.hang_scenario_list import SCENARIOS, Scenario
from relkit.output import table, write_atomic

JOBS = Path(__file__).resolve().parents[1] / "jobs"
LIMIT_S = 240.0
# Of a job that is only slow: enough to come to its end after the pauses.
_SLOW_STEPS = 14
_PAUSE_SHARE = 0.6
_WANTED = 0.98
_LOOK_S = 3.0


@dataclass(frozen=True, slots=True)
class Run:
    """One job and what was said of it.

    Args:
        scenario: its name; number: of the run.
        ranks: at fault; step, micro_batch: where.
        said: (rank, category) of all that were named; sentence: the verdict in a line.
        right: as the list says; time_s: from start to end; load: the machine's at the end.
    """

    scenario: str
    number: int
    ranks: tuple[int, ...]
    step: int
    micro_batch: int
    said: tuple[tuple[int, str], ...]
    sentence: str
    right: bool
    time_s: float
    load: float

    @property
    def answer(self) -> str:
        """What was named, without the numbers that were drawn."""
        innocent = sorted({c for rank, c in self.said if rank not in self.ranks})
        own = sorted({c for rank, c in self.said if rank in self.ranks})
        missed = set(self.ranks) - {rank for rank, _ in self.said}
        parts = ["+".join(own)] if own else []
        parts += [f"an innocent rank ({'+'.join(innocent)})"] if innocent else []
        parts += ["a rank at fault is missing"] if missed and self.said else []
        return ", ".join(parts) or self.sentence[:60] or "nothing"


def run_one(scenario: Scenario, number: int, draw: random.Random, given: argparse.Namespace) -> Run:
    """Run a job, and judge what was said of it."""
    candidates = scenario.ranks or tuple(range(scenario.world_size))
    ranks = tuple(sorted(draw.sample(candidates, scenario.how_many)))
    step, micro_batch = draw.choice(scenario.steps), draw.choice(scenario.micro_batches)
    with tempfile.TemporaryDirectory() as folder:
        timeline = Path(folder) / "timeline"
        command = [
            sys.executable, "-m", "relkit", "launch", f"--nproc-per-node={scenario.world_size}",
            f"--hang-timeout={given.hang_timeout}", "--on-hang=abort",
            f"--timeline-path={timeline}", str(JOBS / scenario.job), *scenario.options,
            f"--fault={scenario.fault}", f"--ranks={','.join(map(str, ranks))}",
            f"--step={step}", f"--micro-batch={micro_batch}",
        ]  # fmt: skip
        if not scenario.answers:
            command += [f"--pause-s={_PAUSE_SHARE * given.hang_timeout}", f"--steps={_SLOW_STEPS}"]
        began = time.monotonic()
        code, log = _ended(command, folder)
        took_s = time.monotonic() - began
        said, sentence = _said(timeline)
        if scenario.answers:
            right = {r for r, _ in said} == set(ranks) and all(
                c in scenario.answers for _, c in said
            )
        else:
            right = not said and code == 0 and not sentence
        if given.keep is not None and not right:
            kept = given.keep / f"{scenario.name}-{number}".replace(" ", "").replace(":", "-")
            kept.mkdir(parents=True, exist_ok=True)
            (kept / "log").write_text(log)
            if timeline.exists():
                timeline.rename(kept / f"timeline-{os.getpid()}-{time.time_ns()}")
    return Run(
        scenario.name, number, ranks, step, micro_batch, said, sentence, right, took_s,
        os.getloadavg()[0],
    )  # fmt: skip


def _ended(command: Sequence[str], folder: str) -> tuple[int, str]:
    """Run it to its end; its exit code (-1: it had to be ended) and what it wrote."""
    log = Path(folder, "log")
    with log.open("w") as stream:
        job = subprocess.Popen(
            command, env={**os.environ, "OMP_NUM_THREADS": "1"}, cwd=folder, stdout=stream,
            stderr=subprocess.STDOUT,
        )  # fmt: skip
        try:
            code = job.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            job.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                job.wait(30)
            job.kill()
            code = -1
    return code, log.read_text(errors="replace")


def _said(timeline: Path) -> tuple[tuple[tuple[int, str], ...], str]:
    report = timeline / "report.json"
    if not report.exists():
        return (), ""
    found = json.loads(report.read_text())
    said = tuple((c["rank"], c["category"]) for c in found["culprit_details"])
    return said, str(found["verdict"])


def made_before(output: Path) -> list[Run]:
    """The runs that an earlier call has written; none where there is no such file."""
    if not output.exists():
        return []
    return [
        Run(**{**plain, "ranks": tuple(plain["ranks"]), "said": tuple(map(tuple, plain["said"]))})
        for plain in json.loads(output.read_text())
    ]


def runs(
    chosen: Sequence[Scenario], given: argparse.Namespace, done: Sequence[Run]
) -> Iterator[Run]:
    """All that are not done, the scenarios in turn; each has its own seed, and can be repeated.

    A second job at the same time is begun only while the machine's load average is below --beside.
    """
    alone = threading.Lock()

    def one(scenario: Scenario, number: int) -> Run:
        draw = random.Random(f"{given.seed} {scenario.name} {number}")  # noqa: S311
        while not alone.acquire(timeout=_LOOK_S):
            if os.getloadavg()[0] < given.beside:
                return run_one(scenario, number, draw, given)
        try:
            return run_one(scenario, number, draw, given)
        finally:
            alone.release()

    pool = ThreadPoolExecutor(2 if given.beside else 1)
    try:
        turns = range(given.first, given.first + given.runs)
        made = {(run.scenario, run.number) for run in done}
        waiting = [
            pool.submit(one, scenario, turn)
            for turn in turns
            for scenario in chosen
            if (scenario.name, turn) not in made
        ]
        for ended in as_completed(waiting):
            yield ended.result()
    finally:
        pool.shutdown(cancel_futures=True)


def tables(chosen: Sequence[Scenario], done: Sequence[Run]) -> str:
    """A line a scenario, and the sum."""
    rows = []
    for scenario in chosen:
        some = [run for run in done if run.scenario == scenario.name]
        wrong = Counter(run.answer for run in some if not run.right)
        rows.append(
            (
                scenario.name,
                str(scenario.world_size),
                " or ".join(scenario.answers) or "nothing",
                f"{sum(run.right for run in some)}/{len(some)}",
                "; ".join(f"{count} x {what}" for what, count in wrong.items()),
            )
        )
    right = sum(run.right for run in done)
    share = f"{right / len(done):.1%}" if done else "none"
    times_s = sorted(run.time_s for run in done)
    middle_s = times_s[len(times_s) // 2] if times_s else 0.0
    return (
        table(rows, ("scenario", "ranks", "right is", "right", "said instead"))
        + f"\n{right} of {len(done)} runs right ({share}), {len(chosen)} scenarios, median "
        f"{middle_s:.0f} s a run"
    )


def _line(run: Run) -> str:
    where = f"rank {','.join(map(str, run.ranks))}, step {run.step}.{run.micro_batch}"
    said = ", ".join(f"rank {rank} {category}" for rank, category in run.said)
    return (
        f"{'right' if run.right else 'WRONG'} {run.scenario}, {where}, {run.time_s:.0f} s, "
        f"load {run.load:.1f}: {said or run.sentence or 'nothing'}"
    )


def main() -> int:
    """Run what is asked for; a line for each run and the tables at the end."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=1, help="of each scenario (default 1)")
    parser.add_argument("--first", type=int, default=0, help="number of the first run")
    parser.add_argument(
        "--only", default="", help="scenarios whose name holds one of these, separated by commas"
    )
    parser.add_argument("--seed", default="1", help="of ranks, steps and micro-batches")
    parser.add_argument(
        "--beside", type=float, default=0.0, metavar="LOAD",
        help="two jobs at a time, while the load average is below this (default: one)",
    )  # fmt: skip
    parser.add_argument("--hang-timeout", type=float, default=6.0, metavar="SECONDS")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep what was said where wrong")
    parser.add_argument("--list", action="store_true", help="show the scenarios and end")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="all runs, as JSON")
    parser.add_argument(
        "--resume", action="store_true", help="count what FILE holds, and make the other runs"
    )
    given = parser.parse_args()
    words = given.only.split(",")
    chosen = [s for s in SCENARIOS if any(word in s.name for word in words)]
    if given.list:
        rows = [(s.name, str(s.world_size), " or ".join(s.answers) or "nothing", s.why)
                for s in chosen]  # fmt: skip
        print(table(rows, ("scenario", "ranks", "right is", "why")))
        return 0
    if given.resume and given.output is None:
        parser.error("--resume needs the FILE of -o")
    done = made_before(given.output) if given.resume else []
    names, turns = {s.name for s in chosen}, range(given.first, given.first + given.runs)
    done = [run for run in done if run.scenario in names and run.number in turns]
    total = given.runs * len(chosen)
    for run in runs(chosen, given, tuple(done)):
        done.append(run)
        print(
            f"[{'#' * (20 * len(done) // total):20}] {len(done)}/{total} {_line(run)}", flush=True
        )
        if given.output is not None:
            write_atomic(given.output, json.dumps([asdict(r) for r in done], indent=1) + "\n")
    print(tables(chosen, done))
    return 0 if done and sum(run.right for run in done) >= _WANTED * len(done) else 1


if __name__ == "__main__":
    sys.exit(main())
