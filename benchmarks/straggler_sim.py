"""Stragglers among simulated ranks, with noise from recorded runs: who is found, how soon?

usage: python benchmarks/straggler_sim.py NOISE.npz... [--runs 40] [--steps 30] [--ranks 1024]
       [--slowdowns 0,0.03,0.05,0.1,0.2,0.5] [--average 1] [--scale 1] [--seed 0]
       [--json FILE] [--svg FILE]

A job of 1,024 ranks is 16 x 8 x 8 (data, tensor, pipeline); the work of each pipeline stage
differs by up to 20 %, so that only ranks of one position are comparable. Each run makes 1-4 ranks
slower, by compute (half), input or a starved host, from a random step between 30 and 60 on, and
goes on for --steps more. Found: accused at the last step; the right rank alone counts, and its
cause apart. False: any other rank ever accused in the run, healthy steps included. The time of a
rank in a step is its work times a stretch of a recorded run: the time of a recorded rank outside
of collectives over its running median (31 steps), from a random place on, with what
it starved. What disturbed the
machine for several steps does so here. --average N takes means of N successive recorded steps,
the noise of steps N times as long; --scale F makes what was recorded F times as large, in the
same order. The rules of NVRx and DLRover get the same times after the fault began, and know
nothing of positions: both are given the times over the median of each position, which is more
than they have.

Last it times arrivals and scoring of 1,024 ranks and 100 collectives a step.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from straggler_rules import dlrover, nvrx

from relkit.output import write_atomic
from relkit.straggler.arrivals import arrivals
from relkit.straggler.model import PARTS, Cause, Floats, StepTable
from relkit.straggler.score import RankScorer
from relkit.straggler.steps import infer_steps

BAR = 0.99
WINDOW = 31
TENSOR, STAGES = 8, 8
STEP_S = 0.5
# Shares of a step: compute, waiting for input, the rest.
SHARES = (0.85, 0.05, 0.10)
KINDS = (Cause.COMPUTE, Cause.COMPUTE, Cause.INPUT, Cause.HOST)


def recorded_noise(path: Path, average: int) -> list[Floats]:
    """Of each rank (steps, 2): its own time and its starvation, over the median of its time."""
    found = []
    with np.load(path) as table:
        columns = {name: table[name] for name in table.files}
    for rank in np.unique(columns["rank"]):
        mine = columns["rank"] == rank
        start, end = columns["start_ns"][mine], columns["end_ns"][mine]
        names = ("communicator", "operation", "size_bytes")
        keys = list(zip(*(columns[name][mine].tolist() for name in names), strict=True))
        gaps = np.concatenate([[0.0], (start[1:] - np.maximum.accumulate(end)[:-1]) / 1e9])
        gaps = np.maximum(gaps, 0.0)
        steps = [step for step in infer_steps(keys, gaps).steps if step.regular][5:]
        own = np.array([gaps[step.first : step.end].sum() for step in steps])
        own = own[: len(own) // average * average].reshape(-1, average).mean(axis=1)
        around = np.pad(own, WINDOW // 2, mode="reflect")
        middle = np.median(np.lib.stride_tricks.sliding_window_view(around, WINDOW), axis=1)
        looks = columns["look_rank"] == rank
        starved_s = np.interp(end, columns["look_ns"][looks], columns["starved_ns"][looks]) / 1e9
        until = np.array([starved_s[step.end - 1] - starved_s[step.first - 1] for step in steps])
        until = until[: len(own) * average].reshape(-1, average).mean(axis=1)
        found.append(np.stack([own / middle, np.clip(until, 0.0, 0.95 * own) / middle], axis=1))
    return found


@dataclass
class Tally:
    """Counts over all runs of one slowdown and one method."""

    found: int = 0
    missed: int = 0
    false: int = 0
    right_cause: int = 0
    delays: list[int] = field(default_factory=list)

    @property
    def precision(self) -> float:
        """Share of the accused that are slow; 1 where nobody is accused."""
        return self.found / max(1, self.found + self.false) if self.found or self.false else 1.0

    @property
    def recall(self) -> float:
        """Share of the slow that are accused."""
        return self.found / max(1, self.found + self.missed)


def main() -> None:
    """Simulate, count, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("noise", nargs="+", type=Path)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--average", type=int, default=1)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--slowdowns", default="0,0.03,0.05,0.1,0.2,0.5")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--svg", type=Path)
    options = parser.parse_args()
    noise = [one for path in options.noise for one in recorded_noise(path, options.average)]
    noise = [one * options.scale + np.array([1.0 - options.scale, 0.0]) for one in noise]
    scatter = [1.4826 * float(np.median(np.abs(one[:, 0] - 1.0))) for one in noise]
    print(f"noise of {len(noise)} recorded ranks, {sum(map(len, noise))} steps: sigma (by MAD)")
    print("  " + ", ".join(f"{value:.1%}" for value in scatter))
    ran = [(one[:, 0] - one[:, 1]) / np.median(one[:, 0] - one[:, 1]) for one in noise]
    scatter = [1.4826 * float(np.median(np.abs(one - 1.0))) for one in ran]
    print("  less starvation: " + ", ".join(f"{value:.1%}" for value in scatter))
    print("slowdown method   precision recall cause-right steps-to-verdict(median) false/runs")
    curve = []
    for slowdown in map(float, options.slowdowns.split(",")):
        rng = np.random.default_rng([options.seed, round(slowdown * 1000)])
        tallies: dict[str, Tally] = defaultdict(Tally)
        for _ in range(options.runs):
            one_run(rng, noise, options.ranks, slowdown, options.steps, tallies)
        for method, tally in tallies.items():
            delay = float(np.median(tally.delays)) if tally.delays else float("nan")
            cause = tally.right_cause / max(1, tally.found)
            print(
                f"{slowdown:8.1%} {method:8s} {tally.precision:9.2%} {tally.recall:6.1%} "
                f"{cause:11.1%} {delay:10.0f} {tally.false:14d}/{options.runs}"
            )
            row = {"slowdown": slowdown, "method": method, "precision": tally.precision}
            row |= {"recall": tally.recall, "false": tally.false, "cause_right": cause}
            curve.append(row | {"median_steps": delay, "runs": options.runs})
    at_bar = [r for r in curve if r["method"] == "relkit" and r["slowdown"] == 0.1]
    for row in at_bar:
        good = float(str(row["precision"])) >= BAR and float(str(row["recall"])) >= BAR
        print(f"bar at 10 %: {'reached' if good else 'NOT reached'} (99 % of both)")
    timing()
    if options.json:
        write_atomic(options.json, json.dumps(curve, indent=1) + "\n")
    if options.svg:
        plot(options.svg, curve)


def one_run(
    rng: np.random.Generator,
    noise: list[Floats],
    ranks: int,
    slowdown: float,
    after: int,
    tallies: dict[str, Tally],
) -> None:
    """One job with its faults; adds to the counts of each method."""
    onset = int(rng.integers(30, 60))
    steps = onset + after
    slow = rng.choice(ranks, size=int(rng.integers(1, 5)) if slowdown else 0, replace=False)
    kinds = {int(rank): KINDS[int(rng.integers(len(KINDS)))] for rank in slow}
    stage = np.arange(ranks) // TENSOR % STAGES
    work = STEP_S * (1.0 + 0.2 * stage / STAGES)
    shake = np.empty((steps, ranks, 2))
    for rank in range(ranks):
        record = noise[int(rng.integers(len(noise)))]
        shake[:, rank] = record[(int(rng.integers(len(record))) + np.arange(steps)) % len(record)]
    positions = [(rank % TENSOR, rank // TENSOR % STAGES) for rank in range(ranks)]
    scorer = RankScorer(positions)
    accused_ever: dict[int, int] = {}
    own = np.empty((steps, ranks))
    verdicts: dict[int, Cause] = {}
    for step in range(steps):
        parts = np.zeros((len(PARTS), ranks))
        parts[:3] = np.array(SHARES)[:, None] * work * shake[step, :, 0]
        parts[4] = work * shake[step, :, 1]
        for rank, kind in kinds.items():
            if step >= onset:
                _slow_down(parts[:, rank], kind, slowdown, float(work[rank]))
        own[step] = parts[:3].sum(axis=0)
        by_group = own[step].reshape(-1, TENSOR)
        late = (by_group - np.median(by_group, axis=1, keepdims=True)).reshape(-1)
        found = scorer.update(StepTable(step, parts, late))
        verdicts = {verdict.rank: verdict.cause for verdict in found}
        for rank in verdicts:
            accused_ever.setdefault(rank, step)
    tally = tallies["relkit"]
    for rank, kind in kinds.items():
        tally.found += rank in verdicts
        tally.missed += rank not in verdicts
        tally.right_cause += verdicts.get(rank) is kind
        if rank in verdicts:
            tally.delays.append(accused_ever[rank] - onset + 1)
    tally.false += len(set(accused_ever) - set(kinds))
    relative = own[onset:] / work
    for method, rule in (("nvrx", nvrx), ("dlrover", dlrover)):
        named = set(np.flatnonzero(rule(relative)).tolist())
        tallies[method].found += len(named & set(kinds))
        tallies[method].missed += len(set(kinds) - named)
        tallies[method].false += len(named - set(kinds))


def _slow_down(parts: Floats, kind: Cause, slowdown: float, work_s: float) -> None:
    extra = slowdown * work_s
    if kind is Cause.INPUT:
        parts[1] += extra
    else:
        parts[0] += extra
    if kind is Cause.HOST:
        parts[4] += extra


def timing() -> None:
    """Time of a step with 1,024 ranks and 100 collectives."""
    rng = np.random.default_rng(1)
    ranks, collectives, rounds = 1024, 100, 30
    scorer = RankScorer([(rank % TENSOR, rank // TENSOR % STAGES) for rank in range(ranks)])
    starts = np.sort(rng.normal(0.0, 1e-4, (collectives, ranks)), axis=0)
    ends = starts.max(axis=1, keepdims=True) + 1e-3 + np.zeros_like(starts)
    offsets = np.zeros(ranks)
    spent_ms = []
    for step in range(rounds):
        parts = np.abs(rng.normal(0.1, 0.003, (len(PARTS), ranks)))
        began = time.perf_counter()
        seen = arrivals(starts, ends, offsets)
        scorer.update(StepTable(step, parts, seen.lateness_s.max(axis=0)))
        spent_ms.append(1e3 * (time.perf_counter() - began))
    print(
        f"{ranks} ranks x {collectives} collectives: median {np.median(spent_ms):.1f} ms a step, "
        f"worst {max(spent_ms):.1f} ms (aim: below 10)"
    )


def plot(path: Path, curve: list[dict[str, object]]) -> None:
    """Recall over slowdown, one line a method."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.0, 3.6), layout="constrained")
    axes = figure.add_subplot()
    for method in ("relkit", "nvrx", "dlrover"):
        rows = [row for row in curve if row["method"] == method and row["slowdown"]]
        slow = [100.0 * float(str(row["slowdown"])) for row in rows]
        axes.plot(slow, [100.0 * float(str(row["recall"])) for row in rows], "o-", label=method)
    axes.set(xscale="log", xlabel="slowdown, %", ylabel="found, %", ylim=(-3, 103))
    axes.legend()
    figure.savefig(path)


if __name__ == "__main__":
    main()
