"""Stragglers among simulated ranks, with noise from recorded runs: who is found, how soon?

usage: python benchmarks/straggler/straggler_sim.py NOISE.npz [--ranks 1024] [--steps 30]
       [--runs 40] [--slowdowns 0.03,0.05,0.1,0.2,0.5] [--faults compute,throttled]
       [--onset 30-60] [--healthy 20] [--healthy-steps 300] [--half all|tune|test] [--scale 1]
       [--seed 0] [--least 0.04] [--json FILE]
       python benchmarks/straggler/straggler_sim.py --plot OUT.svg NAME=FILE.json...

A job of 1,024 ranks is 16 x 8 x 8 (data, tensor, pipeline), and the work of each pipeline stage
differs by up to 20 %; with another number all ranks do equal work. Each run makes 1-4 ranks (of up
to 64 one) slower from a step of --onset on, and goes on for --steps more. Faults:

  compute    in kernels                   input   waiting for input, marked
  throttled  stopped by the cgroup
  gc         collections of 200 ms every four steps, whatever the slowdown

and what makes a rank slower, and is no fault of it that could be told: nobody is to be accused.

  host       waiting for a core that others have
  sleep      the main thread sleeps, nobody says what for

Found: accused at the last step; the right rank alone counts, and its cause apart. False: any other
rank ever accused, in runs with faults or in the healthy ones; for NVRx and DLRover, whose rules
know neither, ranks of `host` and `sleep` count for nothing. The time of a rank in a step is its
work times a stretch of a recorded run from a random place on, with what it starved there; the
ranks of a simulated host, as many as were recorded, share the place, and a stretch that reaches
the end of the record goes on at its beginning. The rules of NVRx and DLRover
get the same times after the fault began, over the median of each position, which is more than they
have. Last it times lateness and scoring of 1,024 ranks and 100 collectives a step.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from benchmarks.straggler.straggler_noise import HALVES, recorded_noise, scatter
from benchmarks.straggler.straggler_plot import plot
from benchmarks.straggler.straggler_rules import dlrover, nvrx
from relkit.output import write_atomic
from relkit.straggler.model import PARTS, Cause, Floats
from relkit.straggler.score.rank_scorer import RankScorer, Settings
from relkit.straggler.step_record import StepTable

BAR = 0.99
LARGE, TENSOR, STAGES = 1024, 8, 8
STEP_S = 0.06
GC_S, GC_EVERY = 0.2, 4
# Shares of a step: compute, waiting for input, the rest.
SHARES = (0.85, 0.05, 0.10)
CAUSES = {
    "compute": Cause.COMPUTE, "input": Cause.INPUT, "throttled": Cause.HOST, "gc": Cause.HOST,
}  # fmt: skip
LEGAL = ("host", "sleep")


@dataclass
class Tally:
    """Counts over all runs of one slowdown and one method."""

    found: int = 0
    missed: int = 0
    false: int = 0
    right_cause: int = 0
    delays: list[int] = field(default_factory=list)
    missed_kinds: Counter[str] = field(default_factory=Counter)

    @property
    def precision(self) -> float:
        """Share of the accused that are slow; 1 where nobody is accused."""
        return self.found / max(1, self.found + self.false) if self.found or self.false else 1.0

    @property
    def recall(self) -> float:
        """Share of the slow that are accused."""
        return self.found / max(1, self.found + self.missed)


class Simulation:
    """Jobs of some ranks with recorded noise.

    Args:
        noise: of each recorded rank, see recorded_noise; ranks: of the simulated job.
        settings: of the scorer.
    """

    def __init__(self, noise: list[Floats], ranks: int, settings: Settings | None = None) -> None:
        self._noise, self._ranks, self._settings = noise, ranks, settings
        rank = np.arange(ranks)
        large = ranks == LARGE
        self._group = TENSOR if large else ranks
        stage = rank // TENSOR % STAGES if large else np.zeros(ranks)
        self._work = STEP_S * (1.0 + 0.2 * stage / STAGES)
        self._positions = [(one % TENSOR, one // TENSOR % STAGES) if large else 0 for one in rank]

    def run(
        self, rng: np.random.Generator, steps: int, onset: int, kinds: dict[int, str], slow: float
    ) -> tuple[dict[int, Cause], dict[int, int], Floats]:
        """One job.

        Returns:
            (who is accused at the end, first step of each accusation, local time over the work)
        """
        shake = self._shake(rng, steps)
        scorer = RankScorer(self._positions, self._settings)
        own = np.empty((steps, self._ranks))
        tables: list[StepTable] = []
        for step in range(steps):
            parts = np.zeros((len(PARTS), self._ranks))
            parts[:3] = np.array(SHARES)[:, None] * self._work * shake[step, :, 0]
            parts[4] = self._work * shake[step, :, 1]
            if step >= onset:
                for rank, kind in kinds.items():
                    _slow_down(parts[:, rank], kind, slow * float(self._work[rank]), step)
            own[step] = parts[:3].sum(axis=0)
            groups = own[step].reshape(-1, self._group)
            late = (groups - np.median(groups, axis=1, keepdims=True)).reshape(-1)
            tables.append(StepTable(step, parts, late))
        accused: dict[int, int] = {}
        last: dict[int, Cause] = {}
        for step, judged in enumerate(scorer.update(tables)):
            last = {
                verdict.rank: verdict.cause
                for verdict in judged
                if verdict.cause is not Cause.NOISE and verdict.accuses
            }
            for rank in last:
                accused.setdefault(rank, step)
        return last, accused, own / self._work

    def _shake(self, rng: np.random.Generator, steps: int) -> Floats:
        """(steps, ranks, 2); each host replays all ranks of the record from one place on."""
        shortest = min(map(len, self._noise))
        found = np.empty((steps, self._ranks, 2))
        for first in range(0, self._ranks, len(self._noise)):
            place = (int(rng.integers(shortest)) + np.arange(steps)) % shortest
            order = rng.permutation(len(self._noise))
            for rank, which in zip(range(first, self._ranks), order, strict=False):
                found[:, rank] = self._noise[which][place]
        return found


def main() -> None:
    """Simulate, count, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("noise", nargs="+")
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--ranks", type=int, default=LARGE)
    parser.add_argument("--onset", default="30-60")
    parser.add_argument("--faults", default="compute,compute,input,throttled")
    parser.add_argument("--healthy", type=int, default=20)
    parser.add_argument("--healthy-steps", type=int, default=300)
    parser.add_argument("--half", choices=HALVES, default="all")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--slowdowns", default="0.03,0.05,0.1,0.2,0.5")
    parser.add_argument("--least", type=float, default=Settings().min_slowdown)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args()
    if options.plot:
        plot(options.plot, dict(one.split("=", 1) for one in options.noise))
        return
    noise = [one for path in options.noise for one in recorded_noise(Path(path), options.half)]
    noise = [one * options.scale + np.array([1.0 - options.scale, 0.0]) for one in noise]
    print(f"noise of {len(noise)} recorded ranks, {sum(map(len, noise))} steps ({options.half})")
    print("  sigma (by MAD): " + ", ".join(f"{scatter(one[:, 0]):.1%}" for one in noise))
    ran = ", ".join(f"{scatter(one[:, 0] - one[:, 1]):.1%}" for one in noise)
    print(f"  less starvation: {ran}")
    usual = Settings()
    smaller = () if options.least >= usual.min_slowdown else (options.least,)
    settings = replace(usual, min_slowdown=options.least, shifts=(*smaller, *usual.shifts))
    simulation = Simulation(noise, options.ranks, settings)
    rows = [healthy(simulation, options)]
    print("slowdown method   precision recall cause-right steps(median) false, missed by kind")
    for slowdown in filter(None, options.slowdowns.split(",")):
        rows += with_faults(simulation, options, float(slowdown))
    for row in rows:
        if row["method"] == "relkit" and row["slowdown"] == 0.1:
            good = float(str(row["precision"])) >= BAR and float(str(row["recall"])) >= BAR
            print(f"bar at 10 %: {'reached' if good else 'NOT reached'} (99 % of both)")
    if options.ranks == LARGE:
        timing()
    if options.json:
        write_atomic(options.json, json.dumps(rows, indent=1) + "\n")


def healthy(simulation: Simulation, options: argparse.Namespace) -> dict[str, object]:
    """Jobs without a fault; how many of them accuse somebody."""
    rng = np.random.default_rng([options.seed, 7919])
    wrong = 0
    for _ in range(options.healthy):
        _, accused, _ = simulation.run(rng, options.healthy_steps, 0, {}, 0.0)
        wrong += bool(accused)
    print(f"{wrong} of {options.healthy} healthy jobs of {options.healthy_steps} steps accuse one")
    row: dict[str, object] = {"slowdown": 0.0, "method": "relkit", "false": wrong}
    return row | {"runs": options.healthy, "steps": options.healthy_steps}


def with_faults(
    simulation: Simulation, options: argparse.Namespace, slowdown: float
) -> list[dict[str, object]]:
    """All runs of one slowdown, and the rules of others beside."""
    rng = np.random.default_rng([options.seed, round(slowdown * 1000)])
    tallies: dict[str, Tally] = defaultdict(Tally)
    first, _, last = options.onset.partition("-")
    faults = options.faults.split(",")
    if unknown := set(faults) - set(CAUSES) - set(LEGAL):
        raise SystemExit(f"no such fault: {', '.join(sorted(unknown))}")
    for _ in range(options.runs):
        onset = int(rng.integers(int(first), int(last or first) + 1))
        count = int(rng.integers(1, 5)) if options.ranks > 64 else 1
        slow = rng.choice(options.ranks, size=count, replace=False)
        kinds = {int(rank): faults[int(rng.integers(len(faults)))] for rank in slow}
        said, accused, own = simulation.run(rng, onset + options.steps, onset, kinds, slowdown)
        tally = tallies["relkit"]
        to_find = {rank: kind for rank, kind in kinds.items() if kind in CAUSES}
        for rank, kind in to_find.items():
            tally.found += rank in said
            tally.missed += rank not in said
            tally.missed_kinds[kind] += rank not in said
            tally.right_cause += said.get(rank) is CAUSES[kind]
            if rank in said:
                tally.delays.append(accused[rank] - onset + 1)
        tally.false += len(set(accused) - set(to_find))
        for method, rule in (("nvrx", nvrx), ("dlrover", dlrover)):
            named = set(np.flatnonzero(rule(own[onset:])).tolist())
            tallies[method].found += len(named & set(to_find))
            tallies[method].missed += len(set(to_find) - named)
            tallies[method].false += len(named - set(kinds))
    rows = []
    for method, tally in tallies.items():
        delay = float(np.median(tally.delays)) if tally.delays else float("nan")
        cause = tally.right_cause / max(1, tally.found)
        missed = ", ".join(f"{kind} {n}" for kind, n in tally.missed_kinds.items() if n)
        print(
            f"{slowdown:8.1%} {method:8s} {tally.precision:9.2%} {tally.recall:6.1%} "
            f"{cause:11.1%} {delay:13.0f} {tally.false:5d}  {missed}"
        )
        rows.append({
            "slowdown": slowdown, "method": method, "precision": tally.precision,
            "recall": tally.recall, "false": tally.false, "cause_right": cause,
            "median_steps": delay, "runs": options.runs, "steps": options.steps,
            "faults": tally.found + tally.missed,
        })  # fmt: skip
    return rows


def _slow_down(parts: Floats, kind: str, extra_s: float, step: int) -> None:
    place = {"input": "input", "sleep": "unattributed", "gc": "unattributed"}.get(kind, "compute")
    inside = {
        "sleep": ("off_cpu",),
        "host": ("run_queue_wait",),
        "throttled": ("throttled", "run_queue_wait"),
    }
    if kind == "gc":
        extra_s = GC_S if step % GC_EVERY == 0 else 0.0
    for part in (place, *inside.get(kind, ("gc",) if kind == "gc" else ())):
        parts[PARTS.index(part)] += extra_s


def timing() -> None:
    """Time of a step with 1,024 ranks and 100 collectives."""
    rng = np.random.default_rng(1)
    ranks, collectives, rounds = LARGE, 100, 70
    scorer = RankScorer([(rank % TENSOR, rank // TENSOR % STAGES) for rank in range(ranks)])
    starts = np.sort(rng.normal(0.0, 1e-4, (collectives, ranks)), axis=0)
    spent_ms = []
    for step in range(rounds):
        parts = np.abs(rng.normal(0.1, 0.003, (len(PARTS), ranks)))
        began = time.perf_counter()
        late_s = (starts - np.median(starts, axis=1, keepdims=True)).max(axis=0)
        scorer.update([StepTable(step, parts, late_s)])
        spent_ms.append(1e3 * (time.perf_counter() - began))
    print(
        f"{ranks} ranks x {collectives} collectives: median {np.median(spent_ms):.1f} ms a step, "
        f"worst {max(spent_ms):.1f} ms (aim: below 10)"
    )


if __name__ == "__main__":
    main()
