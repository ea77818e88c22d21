"""From the SIGKILL of a rank to the next committed step: torchrun against `relkit launch`.

The same script (benchmarks/jobs/restart_job.py) under each launcher in turn, round by round. Each
job has one rank killed once: late, after the same number of seconds of training and, under relkit,
once its warm standbys wait; or early, half a second after the first step. Both launchers poll their
workers every 0.1 s, which is torchrun's default:

    python benchmarks/launches/restart.py
    python benchmarks/launches/restart.py --rounds 9 --ranks 2
    python benchmarks/launches/restart.py --peer "lm-resiliency=venv/bin/torchrun ..."

A second table, which needs root: of two hosts (network namespaces) with half of the ranks each, one
is cut off the network, and a spare takes its place; under torchrun, a third agent waits:

    python benchmarks/launches/restart.py --rounds 0 --cuts 5

Another launcher can be named with --peer; torchrun's options follow what is given.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.launches import node_cut
from relkit.accounting.account import PHASES
from relkit.output import table
from relkit.process import procfs
from relkit.stacks.engines.pyspy import pyspy_path

JOB = Path(__file__).resolve().parents[1] / "jobs" / "restart_job.py"
# Of torchrun's time, where the rank is killed late, and early.
BARS = {False: 0.25, True: 1.0}
_START_S, _RESTART_S, _POLL_S = 240.0, 120.0, 0.02
# Before the kill all have trained for this long.
_TRAINS_S = {False: 5.0, True: 0.5}
# Else the new ranks of torch 2.13 find the addresses of the dead ones in the store that torchrun
# keeps over a restart, gloo fails to connect, and it takes torchrun a second restart.
_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
_WARM = "relkit: warm standby: "


@dataclass(frozen=True, slots=True)
class Launcher:
    """A launcher with torchrun's options.

    Args:
        title: for the table; argv: its command; is_warm: it says when its standbys wait.
    """

    title: str
    argv: tuple[str, ...]
    is_warm: bool = False


@dataclass(frozen=True, slots=True)
class Run:
    """One job with one kill.

    Args:
        back_s: from the kill to the next committed step; steps_lost: committed steps done again.
        phases_s: as relkit has accounted for them, s; empty for another launcher.
    """

    back_s: float
    steps_lost: int
    phases_s: dict[str, float]


def main() -> int:
    """Run the rounds and print the table; 1 where the bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--cuts", type=int, default=0)
    parser.add_argument("--peer", action="append", default=[], metavar="TITLE=COMMAND")
    options = parser.parse_args()
    bin_folder = Path(sys.executable).parent
    launchers = [
        Launcher("torchrun", (str(bin_folder / "torchrun"), "--standalone")),
        Launcher(
            "relkit launch", (str(bin_folder / "relkit"), "launch", "--standalone"), is_warm=True
        ),
    ]
    for peer in options.peer:
        title, _, command = peer.partition("=")
        launchers.append(Launcher(title, tuple(shlex.split(command))))
    codes = [
        compare(launchers, options.rounds, options.ranks, is_early=is_early)
        for is_early in (False, True)
        if options.rounds
    ]
    if options.cuts:
        show_cuts(options.ranks // 2, options.cuts)
    return max(codes, default=0)


def compare(launchers: Sequence[Launcher], rounds: int, ranks: int, *, is_early: bool) -> int:
    """Run all rounds of one kind of kill and print the table; 1 where the bar is missed."""
    when = "early" if is_early else "late"
    runs: dict[str, list[Run]] = {launcher.title: [] for launcher in launchers}
    for number in range(rounds):
        for launcher in launchers:
            run = measure(launcher, ranks, is_early=is_early)
            runs[launcher.title].append(run)
            print(f"{when}, round {number + 1}: {launcher.title} {run.back_s:.2f} s", flush=True)
    print(f"killed {when}:")
    return show(runs, BARS[is_early])


def show_cuts(ranks: int, rounds: int) -> None:
    """Cut a host off under relkit and under torchrun in turn, and print the table."""
    ours, under_torchrun = [], []
    for _ in range(rounds):
        ours.append(node_cut.measure(ranks))
        under_torchrun.append(node_cut.measure_torchrun(ranks))
    node_cut.show(ours, under_torchrun)


def measure(launcher: Launcher, ranks: int, *, is_early: bool) -> Run:
    """Run a job, kill its last rank, and see when it commits again."""
    with tempfile.TemporaryDirectory(prefix="relkit-restart-") as name:
        folder = Path(name)
        ours = ("--timeline-path", str(folder / "timeline")) if launcher.is_warm else ()
        argv = [
            *launcher.argv, *ours, "--nproc-per-node", str(ranks),
            "--max-restarts", "1", str(JOB), name,
        ]  # fmt: skip
        with (folder / "log").open("wb") as log:
            job = subprocess.Popen(argv, stdout=log, stderr=log, env={**os.environ, **_ENVIRONMENT})
        try:
            wait(lambda: len(commits(folder, 0)) > 0, _START_S, job, folder)
            begun_s = time.monotonic()
            if launcher.is_warm and not is_early:
                wait(lambda: _WARM in (folder / "log").read_text(), _START_S, job, folder)
            wait(lambda: time.monotonic() - begun_s > _TRAINS_S[is_early], _START_S, job, folder)
            killed_s = time.monotonic()
            os.kill(int((folder / f"pid-0-{ranks - 1}").read_text()), signal.SIGKILL)
            wait(lambda: len(commits(folder, 1)) > 0, _RESTART_S, job, folder)
            # What ends with another code than 0 does not go on either.
            wait(lambda: job.poll() == 0, _RESTART_S, job, folder)
        finally:
            if job.poll() is None:
                job.terminate()
                job.wait(_RESTART_S)
        first = commits(folder, 1)[0]
        newest = max(step for step, _ in commits(folder, 0))
        phases_s = phases(folder) if launcher.is_warm else {}
        return Run(first[1] - killed_s, max(0, newest + 1 - first[0]), phases_s)


def wait(
    is_so: Callable[[], bool], limit_s: float, job: subprocess.Popen[bytes], folder: Path
) -> None:
    """Until it is so."""
    until_s = time.monotonic() + limit_s
    while not is_so():
        if time.monotonic() > until_s or job.poll() not in (None, 0):
            log = (folder / "log").read_text(errors="replace")
            raise SystemExit(f"the job does not go on:\n{log}\n{stacks(job.pid)}")
        time.sleep(_POLL_S)


def stacks(launcher: int) -> str:
    """What a launcher and all of its processes are doing, by py-spy."""
    shown = []
    for pid in (launcher, *procfs.descendants(launcher)):
        dump = subprocess.run(
            [pyspy_path(), "dump", "--nonblocking", "--pid", str(pid)],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        shown.append(f"{pid} {procfs.process_state(pid)}\n{dump.stdout or dump.stderr}")
    return "\n".join(shown)


def commits(folder: Path, attempt: int) -> list[tuple[int, float]]:
    """(step, monotonic s) of an attempt's commits."""
    path = folder / "commits"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    rows = [json.loads(line) for line in lines if line.endswith("\n")]
    return [(step, at_s) for number, step, at_s in rows if number == attempt]


def phases(folder: Path) -> dict[str, float]:
    """What `relkit launch` has written of the recovery."""
    row = json.loads((folder / "timeline/recovery.json").read_text())["recoveries"][0]
    other = {"other": row["other_s"], "standbys": row["standbys"]}
    return {name: value or 0.0 for name, value in {**row["phases_s"], **other}.items()}


def show(runs: dict[str, list[Run]], bar: float) -> int:
    """Print the table; 1 where the bar is missed."""
    medians = {title: statistics.median(run.back_s for run in rows) for title, rows in runs.items()}
    cells = []
    for title, rows in runs.items():
        back_s = sorted(run.back_s for run in rows)
        ratio = statistics.median(
            run.back_s / peer.back_s for run, peer in zip(rows, runs["torchrun"], strict=True)
        )
        lost = max(run.steps_lost for run in rows)
        spread = f"{back_s[0]:.2f} to {back_s[-1]:.2f} s"
        cells.append([title, f"{medians[title]:.2f} s", spread, f"{ratio:.3f}", str(lost)])
    print(table(cells, ("launcher", "median", "spread", "of torchrun's", "most steps lost")))
    accounted = [run.phases_s for run in runs["relkit launch"]]
    names: Sequence[str] = (*PHASES, "other")
    values = [f"{statistics.median(each[name] for each in accounted):.2f} s" for name in names]
    print(table([values], names))
    standbys = [int(each["standbys"]) for each in accounted]
    print(f"workers that were warm standbys, by round: {standbys}")
    ratio = float(cells[1][3])
    print(f"relkit launch takes {ratio:.3f} of torchrun's time; the bar is {bar:g}")
    return 0 if ratio <= bar else 1


if __name__ == "__main__":
    sys.exit(main())
