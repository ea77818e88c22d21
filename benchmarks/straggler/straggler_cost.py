"""What watching for stragglers costs a training step: hook, monitor and scoring together.

    python benchmarks/straggler/straggler_cost.py
    python benchmarks/straggler/straggler_cost.py --products 48         # steps of some 20 ms
    python benchmarks/straggler/straggler_cost.py --rounds 12 --turns 60
    python benchmarks/straggler/straggler_cost.py --way everything      # all that relkit has
    python benchmarks/straggler/straggler_cost.py --way nothing         # all of it off

The same job of real compute (benchmarks/jobs/compute.py, each rank on a core of its own, so that
the launcher has no core to itself) is started under torchrun and under `relkit launch --straggler
warn`. Both live at the same time and run by turns of some seconds, the other one stopped meanwhile
with its launcher: what a shared machine does to one of them it does to the other as well. A pair
of turns gives a ratio of mean steps. Printed is the mean of these without the tenth at either end,
and the 95 % interval of a bootstrap over rounds (a round starts both jobs anew) and pairs.

Beside it stands what the two launchers use of a processor in their turns. It is counted, not
timed, so other users of the machine hardly blur it; were nothing idle, it is what steps lose to
the monitor and the scoring, without the hook.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import psutil

from relkit.output import table, write_atomic
from relkit.process.interruptible_wait import wait_readable

JOB = Path(__file__).resolve().parents[1] / "jobs" / "compute.py"
LIMIT_S = 300.0
# Turns before it counts: modules are loaded, steps are learnt, the launcher looks less often.
WARM_TURNS = 3
TURN_S = 4.0
RESAMPLES = 10_000
TRIMMED = 0.1
AIM_PERCENT = 0.5
PLAIN, WATCHED = "torchrun", "relkit launch"
COMMANDS = {
    PLAIN: ("torch.distributed.run",),
    WATCHED: ("relkit", "launch", "--straggler", "warn"),
}
_EVERYTHING = (
    "--metrics-port", "0", "--metrics-every", "1", "--on-incident", "true", "--trace-python",
    "benchmarks.jobs.turns:Turns.wait", "--otlp-endpoint",
)  # fmt: skip
_NOTHING = (
    "--no-hook", "--no-metrics", "--no-history", "--no-warm-standby", "--straggler", "off",
)  # fmt: skip


class _Collector(BaseHTTPRequestHandler):
    """Takes metrics, and does nothing with them."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@contextlib.contextmanager
def launched_by(way: str) -> Iterator[None]:
    """Have the watched job run with everything, with nothing, or with the watch alone.

    Args:
        way: "watched", "everything" or "nothing".
    """
    with ThreadingHTTPServer(("127.0.0.1", 0), _Collector) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        more = {
            "watched": (),
            "everything": (*_EVERYTHING, f"http://127.0.0.1:{server.server_address[1]}"),
            "nothing": _NOTHING,
        }
        COMMANDS[WATCHED] = (*COMMANDS[WATCHED], *more[way])
        try:
            yield
        finally:
            server.shutdown()


@dataclass
class Launcher:
    """What one launcher's turns came to.

    Args:
        mean_s: of the steps of each turn; used_s, elapsed_s: of a processor by the launcher, and
            of time, in all turns together.
    """

    mean_s: list[float] = field(default_factory=list)
    used_s: float = 0.0
    elapsed_s: float = 0.0


class Job:
    """One job that waits until it is told to run a turn.

    Args:
        launcher: one of COMMANDS; ranks, products: of the job, and its work a step.
        turns, turn_steps: how long it goes on; folder: an empty one.
    """

    def __init__(
        self, launcher: str, ranks: int, products: int, turns: int, turn_steps: int, folder: Path
    ) -> None:
        self._output = folder / "output"
        self._times = folder / "times"
        # Named pipes, and what is written to them: see jobs/turns.py.
        pipes = [*(folder / f"go-{rank}" for rank in range(ranks)), folder / "done"]
        for pipe in pipes:
            os.mkfifo(pipe, 0o600)
        *self._go, self._done = (os.open(pipe, os.O_RDWR | os.O_CLOEXEC) for pipe in pipes)
        self._turn_steps = turn_steps
        command = [
            sys.executable, "-m", *COMMANDS[launcher], "--standalone", f"--nproc-per-node={ranks}",
            *([f"--timeline-path={folder / 'timeline'}"] if launcher == WATCHED else []),
            str(JOB), f"--steps={turns * turn_steps}", f"--products={products}", "--pinned",
            f"--times={self._times}", f"--turns={folder}", f"--turn-steps={turn_steps}",
        ]  # fmt: skip
        with self._output.open("wb") as stream:
            self._child = subprocess.Popen(
                command, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=stream, stderr=stream,
                start_new_session=True,
            )  # fmt: skip

    def close(self) -> None:
        """End what is left of it."""
        if self._child.poll() is None:
            # Workers have sessions of their own, and a launcher that is stopped ends none of them.
            for process in psutil.Process(self._child.pid).children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            self._child.kill()
            self._child.wait()
        for descriptor in (*self._go, self._done):
            os.close(descriptor)

    def pause(self) -> None:
        """Between turns the launcher, too, takes no time from the other job."""
        self._child.send_signal(signal.SIGSTOP)

    def turn(self) -> tuple[float, float]:
        """Let it run a turn: what its launcher used of a processor meanwhile, and how long, s."""
        process = psutil.Process(self._child.pid)
        before_s, began_s = sum(process.cpu_times()[:2]), time.monotonic()
        self._child.send_signal(signal.SIGCONT)
        for pipe in self._go:
            os.write(pipe, b"g")
        readable = False
        while not readable and time.monotonic() - began_s < LIMIT_S and self._child.poll() is None:
            readable = wait_readable(self._done, 1.0)
        if not readable:
            raise SystemExit(self._output.read_text(errors="replace")[-4000:])
        os.read(self._done, 1)
        elapsed_s = time.monotonic() - began_s
        return sum(process.cpu_times()[:2]) - before_s, elapsed_s

    def turns_s(self) -> list[float]:
        """Mean step of each turn, once all are over, s."""
        self._child.send_signal(signal.SIGCONT)
        if self._child.wait(LIMIT_S):
            raise SystemExit(self._output.read_text(errors="replace")[-4000:])
        steps = np.array([float(line) for line in self._times.read_text().split()])
        means: list[float] = steps.reshape(-1, self._turn_steps).mean(axis=1).tolist()
        return means


def run_round(
    ranks: int, products: int, turns: int, turn_steps: int, watched_first: bool
) -> dict[str, Launcher]:
    """Start both jobs, and have them take turns: A B, B A, A B, .."""
    found = {PLAIN: Launcher(), WATCHED: Launcher()}
    with contextlib.ExitStack() as stack:
        jobs: dict[str, Job] = {}
        for launcher in COMMANDS:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="relkit-cost-")))
            jobs[launcher] = Job(launcher, ranks, products, WARM_TURNS + turns, turn_steps, folder)
            stack.callback(jobs[launcher].close)
            # Its first turn also waits for it to come up, alone.
            jobs[launcher].turn()
            jobs[launcher].pause()
        for number in range(1, WARM_TURNS + turns):
            order = (WATCHED, PLAIN) if watched_first is (number % 2 == 0) else (PLAIN, WATCHED)
            for launcher in order:
                used_s, elapsed_s = jobs[launcher].turn()
                # The last turn is followed by the job's end.
                jobs[launcher].pause()
                if number >= WARM_TURNS:
                    found[launcher].used_s += used_s
                    found[launcher].elapsed_s += elapsed_s
        for launcher, job in jobs.items():
            found[launcher].mean_s = job.turns_s()[WARM_TURNS:]
    return found


def middle(ratios: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> float:
    """The mean without the largest and the smallest."""
    cut = int(TRIMMED * len(ratios))
    return float(np.sort(ratios)[cut : len(ratios) - cut].mean())


def interval(rounds: Sequence[Sequence[float]]) -> tuple[float, float]:
    """95 % of what comes of rounds drawn with replacement, and of pairs drawn in each."""
    rng = np.random.default_rng(0)
    drawn = []
    for _ in range(RESAMPLES):
        some = [np.array(rounds[at]) for at in rng.integers(len(rounds), size=len(rounds))]
        drawn.append(middle(np.concatenate([rng.choice(one, len(one)) for one in some])))
    low, high = np.quantile(drawn, (0.025, 0.975))
    return float(low), float(high)


def rounds_of(options: argparse.Namespace) -> Iterator[dict[str, Launcher]]:
    """One after the other, printed as they come."""
    for number in range(options.rounds):
        found = run_round(
            options.ranks, options.products, options.turns, options.turn_steps, number % 2 == 1
        )
        added = 100 * (middle(np.array(ratios(found))) - 1.0)
        share = {name: 100 * one.used_s / one.elapsed_s for name, one in found.items()}
        print(
            f"round {number + 1:2d}: {added:+.2f} %, launcher {share[WATCHED]:.2f} % of a "
            f"processor ({PLAIN} {share[PLAIN]:.2f} %)",
            flush=True,
        )
        yield found


def ratios(found: dict[str, Launcher]) -> list[float]:
    """Of each pair of turns."""
    pairs = zip(found[WATCHED].mean_s, found[PLAIN].mean_s, strict=True)
    return [watched / plain for watched, plain in pairs]


def main() -> None:
    """Run all rounds and print what came of them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=6, help="both jobs are started anew (6)")
    parser.add_argument("--turns", type=int, default=40, help="of each job, a round (40)")
    parser.add_argument("--products", type=int, default=480, help="work a step: 480 is some 160 ms")
    parser.add_argument("--turn-steps", type=int, help=f"steps of a turn; some {TURN_S:g} s")
    parser.add_argument("--ranks", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--way", choices=("watched", "everything", "nothing"), default="watched")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.turn_steps is None:
        # A product of 256 x 256 matrices takes a third of a millisecond, more or less.
        options.turn_steps = max(2, round(TURN_S / (options.products / 3000)))
    with launched_by(options.way):
        done = list(rounds_of(options))
    rows = []
    for launcher in COMMANDS:
        some = [one[launcher] for one in done]
        steps_ms = 1e3 * statistics.fmean(mean for one in some for mean in one.mean_s)
        used_s, elapsed_s = sum(one.used_s for one in some), sum(one.elapsed_s for one in some)
        rows.append((launcher, f"{steps_ms:.2f}", f"{100 * used_s / elapsed_s:.2f}"))
    print(table(rows, ("launcher", "mean step ms", "launcher, % of one processor")))
    pairs = [ratios(one) for one in done]
    low, high = (100 * (edge - 1.0) for edge in interval(pairs))
    added = 100 * (middle(np.concatenate(pairs)) - 1.0)
    print(
        f"{options.rounds} rounds of {options.turns} pairs of turns, {options.ranks} ranks: "
        f"{added:+.2f} % a step, 95 % interval {low:+.2f} to {high:+.2f} %; the aim is "
        f"{AIM_PERCENT} % at most"
    )
    if options.json is not None:
        facts = {
            "ranks": options.ranks, "turn_steps": options.turn_steps, "ratios": pairs,
            "added_percent": [added, low, high], "launchers": rows,
        }  # fmt: skip
        write_atomic(options.json, json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
