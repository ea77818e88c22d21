"""Random fault sets on simulated fleets: does the check find all faults, and only these?

usage: python benchmarks/networks/netcheck_sim.py [--mode quick|small|groups|full] [--sets 1000]
       [--noise 0.05] [--least 0.2] [--most 0.9] [--lognormal] [--transient-rate 0]
       [--transient-min-share 0.3] [--seed 0] [--json FILE]

quick:  1,024 nodes, 1-16 bad nodes.
small:  quick on 4 nodes, none or one of them bad; only where it is asked for, as so few nodes do
        not meet the bar.
groups: 1,024 nodes on 32 switches, 0-4 bad nodes and 1-3 bad uplinks.
full:   64 nodes, 0-4 bad nodes and 1-8 bad single links; judged twice, after the round robin alone
        and after its confirming rounds.

Noise: each directed measurement is the lowest capacity on its path times 1 + sigma z (with
--lognormal exp(sigma z)), z standard normal, drawn anew for every measurement and direction. With
--transient-rate, that share of all measurements reaches only a part of this, uniform from
--transient-min-share to 1. Faults: one in ten is dead; of the others half are slow both ways, a
quarter each in one direction only; the loss is uniform between --least and --most. A fault counts
as found only by its own kind and name. A link behind a worse node (the path loses less than --least
on top, in both directions) cannot be seen: it counts neither as missed nor, if named, as false.

Beside it: DLRover's rule on the same fleets (networks/dlrover_rule.py). It names nodes only.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from benchmarks.networks.dlrover_rule import excluded_nodes
from benchmarks.networks.simulated_fleet import SimulatedFleet, Ways, run
from relkit.netcheck.measure import schedule
from relkit.netcheck.measure.schedule import Schedule
from relkit.netcheck.model import Link, NetVerdict
from relkit.netcheck.solve.judge import solve

BAR = 0.995
Named = frozenset[tuple[str, tuple[str, ...]]]


@dataclass
class Score:
    """Counts over all sets of one method."""

    right: int = 0
    false: int = 0
    missed: int = 0
    inconclusive: int = 0
    perfect: int = 0
    missed_kinds: Counter[str] = field(default_factory=Counter)

    def add(self, named: Named, true: Named, hidden: Named, inconclusive: int = 0) -> None:
        """Count one set."""
        self.right += len(named & true)
        self.false += len(named - true - hidden)
        self.missed += len(true - named)
        self.inconclusive += inconclusive
        self.perfect += named - hidden == true
        self.missed_kinds.update(kind for kind, _ in true - named)

    @property
    def recall(self) -> float:
        """Share of the faults that were named."""
        return self.right / max(1, self.right + self.missed)

    @property
    def precision(self) -> float:
        """Share of the named that were at fault."""
        return self.right / max(1, self.right + self.false)


def drawn_ways(rng: random.Random, least: float, most: float) -> Ways:
    """One random fault."""
    if rng.random() < 0.1:
        return Ways(0.0, 0.0)
    left = 1.0 - rng.uniform(least, most)
    kind = rng.random()
    if kind < 0.5:
        return Ways(left, left)
    return Ways(left, 1.0) if kind < 0.75 else Ways(1.0, left)


def drawn_fleet(mode: str, rng: random.Random, arguments: argparse.Namespace) -> SimulatedFleet:
    """A fleet with the faults of its mode."""

    def ways() -> Ways:
        return drawn_ways(rng, arguments.least, arguments.most)

    count = {"full": 64, "small": 4}.get(mode, 1024)
    nodes = tuple(f"n{number:04d}" for number in range(count))
    least, most = {"quick": (1, 16), "small": (0, 1)}.get(mode, (0, 4))
    bad = rng.sample(nodes, rng.randint(least, most))
    groups: dict[str, str] = {}
    uplinks: dict[str, Ways] = {}
    links: dict[Link, Ways] = {}
    if mode == "groups":
        groups = {node: f"asw-{at // 32:02d}" for at, node in enumerate(nodes)}
        uplinks = {
            name: ways() for name in rng.sample(sorted(set(groups.values())), rng.randint(1, 3))
        }
    if mode == "full":
        wanted = rng.randint(1, 8)
        while len(links) < wanted:
            links[Link.between(*rng.sample(nodes, 2))] = ways()
    return SimulatedFleet(
        nodes,
        groups,
        {node: ways() for node in bad},
        links,
        uplinks,
        noise=arguments.noise,
        lognormal=arguments.lognormal,
        transient_rate=arguments.transient_rate,
        transient_min_share=arguments.transient_min_share,
    )


def truth(fleet: SimulatedFleet, least: float) -> tuple[Named, Named]:
    """The faults that can be seen, and the links that a worse node hides."""
    seen: set[tuple[str, tuple[str, ...]]] = {("node", (name,)) for name in fleet.node_ways}
    seen |= {("group", (f"switch {name}",)) for name in fleet.group_ways}
    hidden: set[tuple[str, tuple[str, ...]]] = set()
    for link, ways in fleet.link_ways.items():
        low, high = (fleet.node_ways.get(name, Ways()) for name in (link.low, link.high))
        upward = ways.out <= (1.0 - least) * min(low.out, high.into) and ways.out < 1.0
        downward = ways.into <= (1.0 - least) * min(high.out, low.into) and ways.into < 1.0
        shown = (upward and min(low.out, high.into) > 0) or (
            downward and min(high.out, low.into) > 0
        )
        (seen if shown else hidden).add(("link", (link.low, link.high)))
    return frozenset(seen), frozenset(hidden)


def named_by(verdict: NetVerdict) -> Named:
    """What a verdict names, in the form of truth()."""
    return frozenset(
        (item.kind, (item.name,) if item.kind == "group" else item.nodes)
        for item in verdict.diagnoses
    )


def planned(mode: str, fleet: SimulatedFleet, seed: int) -> Schedule:
    """The schedule of a mode."""
    if mode in ("quick", "small"):
        return schedule.quick(fleet.nodes, seed)
    if mode == "groups":
        return schedule.groups(fleet.nodes, fleet.groups)
    return schedule.full(fleet.nodes)


def benchmark(mode: str, arguments: argparse.Namespace, show: Callable[[str], None]) -> bool:
    """Run one mode and print its results; True where it meets the bar."""
    scores: dict[str, Score] = {}
    rounds: Counter[int] = Counter()
    most, started = 0, time.perf_counter()
    for number in range(arguments.sets):
        seed = arguments.seed * 1_000_003 + number
        fleet = drawn_fleet(mode, random.Random(f"{mode} {seed}"), arguments)  # noqa: S311
        true, hidden = truth(fleet, arguments.least)
        plan = planned(mode, fleet, seed)
        done = run(fleet, plan, seed=seed, groups=fleet.groups)
        rounds[len(done.rounds)] += 1
        most = plan.max_rounds
        named = named_by(done.verdict)
        scores.setdefault("relkit", Score()).add(
            named, true, hidden, len(done.verdict.inconclusive)
        )
        if arguments.misses and named - hidden != true:
            show(f"  set {number}: missed {true - named}, false {named - true - hidden}")
            show(f"    {fleet.node_ways} {fleet.link_ways} {fleet.group_ways}")
            show(f"    {done.verdict.inconclusive}")
        if mode == "full":
            alone = [edge for edge in done.edges if edge.round < len(fleet.nodes) - 1]
            verdict = solve(alone, fleet.nodes)
            scores.setdefault("relkit, round robin only", Score()).add(
                named_by(verdict), true, hidden, len(verdict.inconclusive)
            )
        for name, matmul_ms in (("DLRover's rule", 15.0), ("same, without the matmul", 0.0)):
            excluded = excluded_nodes(fleet, np.random.default_rng(seed), matmul_ms=matmul_ms)
            scores.setdefault(name, Score()).add(
                frozenset(("node", (node,)) for node in excluded), true, hidden
            )
    took_s = time.perf_counter() - started
    own = scores["relkit"]
    met = own.recall >= BAR and own.precision >= BAR and max(rounds) <= most
    show(f"{mode}: {arguments.sets} fault sets, {took_s:.0f} s, at most {most} rounds allowed")
    spread = " ".join(f"{used}:{times}" for used, times in sorted(rounds.items()))
    show(f"  rounds used: {spread}")
    show("  method                      recall  precision  all right  missed  false  inconclusive")
    for name, score in scores.items():
        show(
            f"  {name:26} {score.recall:7.2%} {score.precision:10.2%} "
            f"{score.perfect / arguments.sets:10.1%} {score.missed:7} {score.false:6} "
            f"{score.inconclusive:13}  {dict(score.missed_kinds) or ''}"
        )
    show(f"  {'meets' if met else 'MISSES'} the bar of {BAR:.1%}")
    if arguments.json:
        row = {
            "mode": mode,
            "sets": arguments.sets,
            "rounds": dict(rounds),
            "recall": own.recall,
            "precision": own.precision,
        }
        with Path(arguments.json).open("a") as file:
            file.write(json.dumps(row) + "\n")
    return met


def main() -> None:
    """Run the modes asked for; exit 1 where one misses the bar."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--mode", choices=("quick", "small", "groups", "full"), action="append")
    parser.add_argument("--sets", type=int, default=1000)
    parser.add_argument("--noise", type=float, default=0.05)
    parser.add_argument("--least", type=float, default=0.2, help="least loss of a fault")
    parser.add_argument("--most", type=float, default=0.9, help="greatest loss of a slow fault")
    parser.add_argument("--lognormal", action="store_true")
    parser.add_argument(
        "--transient-rate", type=float, default=0.0, help="share of slowed measurements"
    )
    parser.add_argument(
        "--transient-min-share", type=float, default=0.3, help="what these reach at least"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--misses", action="store_true", help="show every set that went wrong")
    parser.add_argument("--json", metavar="FILE", help="append one JSON line a mode")
    arguments = parser.parse_args()
    modes = arguments.mode or ["quick", "groups", "full"]
    results = [benchmark(mode, arguments, lambda line: print(line, flush=True)) for mode in modes]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
