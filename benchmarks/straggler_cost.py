"""What watching for stragglers costs a training step: hook, monitor and scoring together.

    python -m benchmarks.straggler_cost
    python -m benchmarks.straggler_cost --rounds 60 --steps 150     # a narrower interval
    python -m benchmarks.straggler_cost --products 480 --steps 60   # steps of some 160 ms

The same job of real compute (benchmarks/jobs/compute.py, each rank on a core of its own, so that
the launcher has no core to itself) runs under torchrun and under `relkit launch --straggler warn`
in turn; which one comes first changes from round to round. It writes down how long each step took.
A round's ratio is that of the two means in it, and what is printed is the median of those ratios,
with the 95 % interval of a bootstrap over rounds. The launcher looks twice a second, so that most
steps meet none of its work: the ratio of the median steps, printed too, would hide that.

Beside it stands what the two launchers use of a processor while the job steps. It is counted, not
timed, so other users of the machine hardly blur it; were nothing idle, it is what steps lose to
the monitor and the scoring, without the hook.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import psutil

from relkit.output import table, write_atomic

JOB = Path(__file__).resolve().parent / "jobs" / "compute.py"
LIMIT_S = 600.0
WARM_STEPS = 20
LOOK_S = 0.25
RESAMPLES = 10_000
AIM_PERCENT = 0.5
PLAIN, WATCHED = "torchrun", "relkit launch"
COMMANDS = {
    PLAIN: ("torch.distributed.run",),
    WATCHED: ("relkit", "launch", "--straggler", "warn"),
}


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the job.

    Args:
        mean_s, median_s: of the steps after warming up.
        launcher_share: of one processor, that the launcher used while the job stepped.
    """

    mean_s: float
    median_s: float
    launcher_share: float


def run_job(launcher: str, ranks: int, steps: int, products: int, folder: Path) -> Run:
    """Run it once.

    Args:
        launcher: one of COMMANDS; products: work a step; folder: an empty one.
    """
    times = folder / "times"
    command = [
        sys.executable, "-m", *COMMANDS[launcher], "--standalone", f"--nproc-per-node={ranks}",
        *([f"--timeline-path={folder / 'timeline'}"] if launcher == WATCHED else []),
        str(JOB), f"--steps={steps}", f"--products={products}", "--pinned", f"--times={times}",
    ]  # fmt: skip
    looks: list[tuple[float, float]] = []
    with (folder / "output").open("wb") as stream:
        child = subprocess.Popen(
            command, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=stream, stderr=stream,
            start_new_session=True,
        )  # fmt: skip
    try:
        until_s = time.monotonic() + LIMIT_S
        while child.poll() is None and not times.exists() and time.monotonic() < until_s:
            try:
                used = psutil.Process(child.pid).cpu_times()
            except psutil.NoSuchProcess:
                break
            looks.append((time.monotonic(), used.user + used.system))
            time.sleep(LOOK_S)
        child.wait(max(1.0, until_s - time.monotonic()))
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
    if child.returncode != 0 or not times.exists():
        raise SystemExit((folder / "output").read_text(errors="replace")[-4000:])
    steps_s = [float(line) for line in times.read_text().split()][WARM_STEPS:]
    return Run(statistics.fmean(steps_s), statistics.median(steps_s), _share(looks, sum(steps_s)))


def _share(looks: list[tuple[float, float]], stepped_s: float) -> float:
    """Processor time by elapsed time over the last looks, as far as the steps go back."""
    last_s = looks[-1][0]
    some = [look for look in looks if look[0] >= last_s - stepped_s]
    elapsed_s = some[-1][0] - some[0][0]
    return (some[-1][1] - some[0][1]) / elapsed_s if elapsed_s > 0.0 else float("nan")


def interval(ratios: list[float]) -> tuple[float, float]:
    """95 % of the medians of samples drawn from the rounds, with replacement."""
    rng = np.random.default_rng(0)
    drawn = rng.choice(np.array(ratios), size=(RESAMPLES, len(ratios)))
    low, high = np.quantile(np.median(drawn, axis=1), (0.025, 0.975))
    return float(low), float(high)


def main() -> None:
    """Run all rounds and print what came of them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=30, help="of one run each (30)")
    parser.add_argument("--steps", type=int, default=120, help=f"a run, {WARM_STEPS} to warm up")
    parser.add_argument("--products", type=int, default=48, help="work a step: 48 is some 16 ms")
    parser.add_argument("--ranks", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.steps < 2 * WARM_STEPS:
        parser.error(f"--steps must be {2 * WARM_STEPS} at least")
    runs: dict[str, list[Run]] = {PLAIN: [], WATCHED: []}
    for number in range(options.rounds):
        # The same one twice, then the other twice: a machine that drifts favours neither.
        for launcher in (PLAIN, WATCHED) if number % 2 == 0 else (WATCHED, PLAIN):
            with tempfile.TemporaryDirectory(prefix="relkit-cost-") as folder:
                one = run_job(
                    launcher, options.ranks, options.steps, options.products, Path(folder)
                )
            runs[launcher].append(one)
        print(f"round {number + 1:2d}: ratio {_ratios(runs, 'mean_s')[-1]:.4f}", flush=True)
    rows = [
        (
            launcher,
            f"{1e3 * statistics.median(one.mean_s for one in some):.2f}",
            f"{1e3 * statistics.median(one.median_s for one in some):.2f}",
            f"{100 * statistics.median(one.launcher_share for one in some):.2f}",
        )
        for launcher, some in runs.items()
    ]
    header = ("launcher", "mean step ms", "median step ms", "launcher, % of one processor")
    print(table(rows, header))
    print(f"{options.rounds} rounds of {options.ranks} ranks; the aim is {AIM_PERCENT} % at most")
    facts: dict[str, object] = {"ranks": options.ranks, "steps": options.steps}
    for field in ("mean_s", "median_s"):
        ratios = _ratios(runs, field)
        added, low, high = (
            100 * (edge - 1.0) for edge in (statistics.median(ratios), *interval(ratios))
        )
        name = field.removesuffix("_s")
        print(f"{name} step: {added:+.2f} %, 95 % interval {low:+.2f} to {high:+.2f} %")
        facts[name] = {"ratios": ratios, "added_percent": [added, low, high]}
    if options.json is not None:
        facts["runs"] = {launcher: [asdict(one) for one in some] for launcher, some in runs.items()}
        write_atomic(options.json, json.dumps(facts, indent=1) + "\n")


def _ratios(runs: dict[str, list[Run]], field: str) -> list[float]:
    pairs = zip(runs[WATCHED], runs[PLAIN], strict=True)
    return [getattr(watched, field) / getattr(plain, field) for watched, plain in pairs]


if __name__ == "__main__":
    main()
