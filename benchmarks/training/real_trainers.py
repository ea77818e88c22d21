"""Healthy jobs of three real trainers must stay silent; one rank with 20 % more work is named.

usage: python benchmarks/training/real_trainers.py [--trainers hf,megatron,nanogpt] [--healthy 50]
       [--busier 10] [--json FILE]

Two ranks on two cores under `relkit launch --straggler warn`, steps of 20 to 35 ms: Hugging
Face's Trainer, megatron-core's model, DDP and schedule, and a loop of nanoGPT's order
(benchmarks/jobs).
A busier rank gets 12 sequences a step, its peer 10. Wrong is any line about a straggler in a
healthy run, and in the others a line about the other rank, another cause, or none at all. How many
were taken back before the end of the job is counted apart.

    pip install torch==2.13.0 transformers megatron-core accelerate
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from relkit.errors import RelkitError
from relkit.output import table, write_atomic
from relkit.straggler.transport.history import load

JOBS = Path(__file__).resolve().parents[1] / "jobs"
TRAINERS = {"hf": "hf_trainer.py", "megatron": "megatron_loop.py", "nanogpt": "nanogpt_loop.py"}
HEALTHY_STEPS = 400
# 2 ms a step: a straggler has its line on the terminal once it has cost the job a second.
BUSIER_STEPS = 2000
LIMIT_S = 600
_LINE = re.compile(r"straggler: (.*)")
# The other rank may well be slower for a while, on a machine that is not quiet.
_OVER = "as fast as the others again"


@dataclass(frozen=True, slots=True)
class Run:
    """One job and what became of it.

    Args:
        trainer: of TRAINERS; number: of its kind; busier_rank: -1 in a healthy job.
        said: the launcher's lines about stragglers.
        right: whether they are as they should be; steps: that relkit saw; time_s: all in all.
        exit_code: the launcher's; load: the machine's load average at the end.
    """

    trainer: str
    number: int
    busier_rank: int
    said: tuple[str, ...]
    right: bool
    steps: int
    time_s: float
    exit_code: int
    load: float


def runs(trainers: list[str], healthy: int, busier: int) -> Iterator[Run]:
    """All of them, the trainers in turn."""
    for number in range(max(healthy, busier)):
        for trainer in trainers:
            if number < healthy:
                yield run_one(trainer, number, -1)
            if number < busier:
                yield run_one(trainer, number, number % 2)


def run_one(trainer: str, number: int, busier_rank: int) -> Run:
    """Run a job, and judge what was said of it."""
    steps = HEALTHY_STEPS if busier_rank < 0 else BUSIER_STEPS
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable, "-m", "relkit", "launch", "--straggler=warn", "--nproc-per-node=2",
            f"--timeline-path={folder}", str(JOBS / TRAINERS[trainer]),
            f"--steps={steps}", f"--busier-rank={busier_rank}",
        ]  # fmt: skip
        began = time.monotonic()
        done = subprocess.run(
            command, env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=LIMIT_S,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        took_s = time.monotonic() - began
        try:
            seen = load(Path(folder, "straggler", "history.npz")).steps
        except RelkitError:
            seen = 0
    said = tuple(_LINE.findall(done.stderr))
    if busier_rank < 0:
        as_it_should = not said
    else:
        named = f"rank {busier_rank} "
        accused = [line for line in said if _OVER not in line]
        as_it_should = bool(accused) and all(named in line for line in said)
        as_it_should &= all("compute" in line for line in accused)
    # A job that nobody looked at is no proof of silence.
    right = as_it_should and done.returncode == 0 and seen >= steps // 2
    return Run(
        trainer, number, busier_rank, said, right, seen, took_s, done.returncode, os.getloadavg()[0]
    )  # fmt: skip


def main() -> None:
    """Run all, print a line for each and a table at the end."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trainers", default="hf,megatron,nanogpt")
    parser.add_argument("--healthy", type=int, default=50)
    parser.add_argument("--busier", type=int, default=10)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    trainers = options.trainers.split(",")
    done: list[Run] = []
    for run in runs(trainers, options.healthy, options.busier):
        done.append(run)
        what = "healthy" if run.busier_rank < 0 else f"rank {run.busier_rank} busier"
        print(
            f"{run.trainer:8} {run.number:3} {what:14} {'right' if run.right else 'WRONG'} "
            f"{run.steps} steps, {run.time_s:.0f} s, exit {run.exit_code}, load {run.load:.1f}: "
            f"{'; '.join(run.said) or 'nothing said'}",
            flush=True,
        )
    rows = []
    for trainer in trainers:
        for is_healthy in (True, False):
            some = [r for r in done if r.trainer == trainer and (r.busier_rank < 0) is is_healthy]
            if some:
                kind = "healthy, silent" if is_healthy else "busier rank, named"
                over = sum(any(_OVER in line for line in r.said) for r in some)
                rows.append((trainer, kind, f"{sum(r.right for r in some)}/{len(some)}", str(over)))
    print(table(rows, ("trainer", "runs", "right", "taken back")))
    if options.json is not None:
        write_atomic(options.json, json.dumps([asdict(r) for r in done], indent=1) + "\n")


if __name__ == "__main__":
    main()
