"""A storm of random faults over a job of four nodes and two spares, on six hosts of one machine.

    python benchmarks/storms/storm.py --faults 200 --seed 1
    python benchmarks/storms/storm.py --faults 24 --only "host lost" --option=--replica-count=1

A host is a network namespace with shared memory of its own. Ranks and launchers are killed and
stopped, hosts are cut off or lost, interfaces become slow; now and then, a second fault strikes
while the job still recovers from the first. What ended is started again, as a spare. Held all the
time, and after every fault:

- the job goes on within --limit-s; if not, it is shown where every process stands;
- no launcher ends that has no reason to, and none leaves a process behind;
- faults that need no restart cause none;
- every launcher comes back as a node of the job or as a spare;
- with replicas, a job that has lost a host goes on from nothing older than the newest step of
  which the other hosts have a copy of every rank;
- the losses of all steps are, to the last bit, those of an undisturbed run.

Exit code 1 where one of these did not hold. Needs root.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.storms.storm_faults import KINDS, Fault, Kind
from benchmarks.storms.storm_fleet import MEMBERS, SPARES, Broken, Fleet, some_fleet, undisturbed
from benchmarks.storms.storm_replicas import newest_replica
from relkit.output import table

# Steps that all ranks have to make before the next fault.
_QUIET_STEPS = 3
_LOG_BYTES = 20_000
# Share of the faults after which all hosts have to be back before the next one.
_SETTLED = 0.25


@dataclass(frozen=True, slots=True)
class Recovery:
    """From one fault, or two at once, to the next step that was not made before.

    Args:
        kind: of the (first) fault; second: that of the second one, "" for none.
        back_s: how long it took; restarts: of ranks; steps_lost: made again.
        replica_step: the newest one of which the other hosts had a copy of every rank when a host
            was lost, -1 for none; loaded_step: that the ranks went on from, -1 where they have not
            started again.
        problem: what did not hold, "" for nothing.
    """

    kind: str
    second: str
    back_s: float
    restarts: int
    steps_lost: int
    replica_step: int
    loaded_step: int
    problem: str = ""


class Storm:
    """Faults, one after another.

    Args:
        fleet: whose job trains; draw: what happens next; double: share of faults with a second one.
        kinds: what may happen, by name.
    """

    def __init__(
        self, fleet: Fleet, draw: random.Random, double: float, kinds: Mapping[str, Kind]
    ) -> None:
        self._fleet, self._draw, self._double = fleet, draw, double
        self._kinds, self._shares = kinds, [kind.share for kind in kinds.values()]

    def strike(self) -> Recovery:
        """Have one or two faults happen, and wait until the job has got over them.

        Raises:
            Broken: it does not.
        """
        fleet, draw = self._fleet, self._draw
        name = draw.choices(list(self._kinds), self._shares)[0]
        kind, second = self._kinds[name], ""
        if kind.restarts and not kind.ends_job and draw.random() < self._double:
            second = draw.choices(list(self._kinds), self._shares)[0]
            second = "" if self._kinds[second].ends_job else second
        if kind.needs_spare:
            self.settle()
        starts, most = [r.starts for r in fleet.ranks], max(r.most for r in fleet.ranks)
        begun_s = time.monotonic()
        members = fleet.members()
        fault = kind.strike(fleet, draw)
        replica_step = -1
        if fault.gone and not second:
            left = [fleet.memory(name) for name in members if name != fault.gone]
            replica_step = newest_replica(left, fleet.job_id, MEMBERS)
        say(f"{fault.words}{f' for {fault.lasts_s:.1f} s' if fault.lasts_s else ''}")
        if kind.ends_job:
            self._start_anew()
        if second:
            self._strike_second(fault, second)
        else:
            fleet.sleep(fault.lasts_s)
            fault.over()
        # The second one may have hit the spare.
        must_restart = kind.restarts and not (second and kind.needs_spare)
        back_s = self._wait_back(must_restart, starts, most) - begun_s
        restarts = max(r.starts - n for r, n in zip(fleet.ranks, starts, strict=True))
        loaded_step = min(r.loaded for r in fleet.ranks) if restarts else -1
        lost = max(0, most - loaded_step) if restarts else 0
        problem = ""
        if restarts and loaded_step < replica_step:
            problem = (
                f"{fault.words}: step {loaded_step} was loaded, replicas had step {replica_step}"
            )
        if restarts and not kind.restarts:
            problem = f"{fault.words}: the ranks have started again"
        say(f"back after {back_s:.1f} s, {restarts} restarts, {lost} steps lost")
        if draw.random() < _SETTLED:
            self.settle()
        return Recovery(name, second, back_s, restarts, lost, replica_step, loaded_step, problem)

    def _strike_second(self, first: Fault, name: str) -> None:
        """A second fault while the first one lasts, or the job recovers from it."""
        fleet, draw = self._fleet, self._draw
        after_s = draw.uniform(0.0, 6.0)
        fleet.sleep(after_s)
        second = self._kinds[name].strike(fleet, draw)
        say(f"  {after_s:.1f} s later: {second.words} {second.lasts_s:.1f} s")
        ends = [(first.lasts_s, first), (after_s + second.lasts_s, second)]
        now_s = after_s
        for end_s, fault in sorted(ends, key=lambda end: end[0]):
            fleet.sleep(max(0.0, end_s - now_s))
            now_s = max(now_s, end_s)
            fault.over()

    def _start_anew(self) -> None:
        """The job is over: all launchers end, and are started again."""
        fleet = self._fleet
        fleet.wait(
            "all launchers have ended, as the host of the store is gone",
            lambda: not any(each.lives for each in fleet.launchers.values()),
        )
        fleet.wait_empty(*fleet.launchers)
        start_all(fleet)

    def _wait_back(self, must_restart: bool, starts: Sequence[int], most: int) -> float:
        """When all ranks had made a step that no rank had made before, monotonic s."""
        fleet = self._fleet
        seen_s = 0.0

        def is_back() -> bool:
            nonlocal seen_s
            # Launchers that were ended come back as spares, which may be needed.
            self._start_ended()
            if must_restart and any(
                r.starts == n for r, n in zip(fleet.ranks, starts, strict=True)
            ):
                return False
            newest = min(r.made for r in fleet.ranks)
            if newest > most and not seen_s:
                seen_s = time.monotonic()
            return newest > most + _QUIET_STEPS

        fleet.wait("the job goes on", is_back)
        return seen_s

    def _start_ended(self) -> None:
        for name, launcher in self._fleet.launchers.items():
            if launcher.may_end and not launcher.lives:
                self._fleet.wait_empty(name)
                self._fleet.start(name)

    def settle(self) -> None:
        """Until all hosts are in the job or wait as spares, and the job trains."""
        fleet = self._fleet

        def is_settled() -> bool:
            self._start_ended()
            members, spares = set(fleet.members()), set(fleet.spares())
            return len(members) == MEMBERS and len(spares - members) == SPARES

        fleet.wait("all launchers are in the job or wait as spares", is_settled)
        made = min(rank.made for rank in fleet.ranks)
        fleet.wait(
            "the job goes on", lambda: min(r.made for r in fleet.ranks) > made + _QUIET_STEPS
        )


def start_all(fleet: Fleet) -> None:
    """Start the job, then its spares."""
    starts = [rank.starts for rank in fleet.ranks]
    for name in fleet.hosts.names:
        fleet.start(name)
    fleet.wait(
        "the job starts",
        lambda: all(r.starts > n for r, n in zip(fleet.ranks, starts, strict=True)),
        # Six launchers and their workers import torch at the same time.
        3 * fleet.limit_s,
    )


def say(line: str) -> None:
    """With the time of day."""
    print(time.strftime("%H:%M:%S"), line, flush=True)


def hold_losses(fleet: Fleet, folder: Path) -> int:
    """How many losses were compared with those of an undisturbed run.

    Raises:
        Broken: one is another.
    """
    folder.mkdir()
    expected = undisturbed(folder, max(rank.most for rank in fleet.ranks))
    for rank, other in zip(fleet.ranks, expected, strict=True):
        for step, loss in rank.losses.items():
            if loss != other.losses[step]:
                raise Broken(
                    f"{rank.path.name}, step {step}: {loss}, undisturbed {other.losses[step]}"
                )
    return sum(len(rank.losses) for rank in fleet.ranks)


def count(recoveries: Sequence[Recovery]) -> int:
    """Of faults."""
    return sum(1 + bool(r.second) for r in recoveries)


def rows(recoveries: Sequence[Recovery]) -> list[list[str]]:
    """Of the table: faults by kind."""
    lines = []
    for name in (*KINDS, "two at once"):
        mine = [r for r in recoveries if (r.kind if not r.second else "two at once") == name]
        times, lost = [r.back_s for r in mine], [r.steps_lost for r in mine]
        if mine:
            line = [name, str(len(mine)), str(sum(r.restarts > 0 for r in mine))]
            line += [f"{statistics.median(times):.1f} s", f"{max(times):.1f} s"]
            lines.append([*line, f"{statistics.median(lost):g}", str(max(lost))])
    return lines


def main(arguments: list[str] | None = None) -> int:
    """Run it and print the table; 1 where something did not hold."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=0.0, help="no fault later; 0: no limit")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--double", type=float, default=0.15, help="share with a second fault")
    parser.add_argument(
        "--only", action="append", choices=KINDS, help="this kind of fault; can be given again"
    )
    parser.add_argument("--hang-timeout-s", type=float, default=20.0)
    parser.add_argument("--limit-s", type=float, default=120.0, help="for every recovery")
    parser.add_argument("--keep", type=Path, help="a new folder for logs, which stays")
    parser.add_argument("--option", action="append", default=[], help="more of relkit launch")
    parser.add_argument("-o", "--output", type=Path, help="JSON")
    options = parser.parse_args(arguments)
    # Ended from outside, it leaves nothing behind either.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    recoveries: list[Recovery] = []
    problem, compared = "", 0
    with tempfile.TemporaryDirectory(prefix="relkit-storm-") as name:
        folder = Path(name) if options.keep is None else options.keep
        folder.mkdir(parents=True, exist_ok=True)
        draw = random.Random(options.seed)  # noqa: S311  nothing secret
        with some_fleet(folder, options.hang_timeout_s, options.limit_s, options.option) as fleet:
            try:
                start_all(fleet)
                kinds = {name: KINDS[name] for name in options.only or KINDS}
                storm = Storm(fleet, draw, options.double, kinds)
                storm.settle()
                end_s = time.monotonic() + (60 * options.minutes or math.inf)
                while count(recoveries) < options.faults and time.monotonic() < end_s:
                    recoveries.append(storm.strike())
                    say(f"{len(recoveries)}: step {fleet.ranks[0].made}")
                storm.settle()
                codes = fleet.end()
                if any(codes.values()):
                    raise Broken(f"launchers ended with {codes}")
                compared = hold_losses(fleet, folder / "undisturbed")
            except Broken as error:
                problem = str(error)
                show_places(fleet)
    return show(recoveries, problem, compared, options)


def show_places(fleet: Fleet) -> None:
    """Where every process stands, and what the launchers said last."""
    print(fleet.stacks(), file=sys.stderr)
    for name in fleet.launchers:
        with suppress(OSError):
            text = (fleet.folder / f"log-{name}").read_text(errors="replace")
            print(f"--- log of {name}\n{text[-_LOG_BYTES:]}", file=sys.stderr)


def show(
    recoveries: Sequence[Recovery], problem: str, compared: int, options: argparse.Namespace
) -> int:
    """Print the table."""
    names = ("fault", "times", "restarts", "back: median", "most", "steps lost: median", "most")
    print(table(rows(recoveries), names))
    problems = [r.problem for r in recoveries if r.problem] + [problem] * bool(problem)
    faults = count(recoveries)
    print(
        f"{faults} faults, seed {options.seed}; {compared} losses held against an undisturbed run"
    )
    held = [
        r.loaded_step - r.replica_step
        for r in recoveries
        if min(r.replica_step, r.loaded_step) >= 0
    ]
    if held:
        print(
            f"{len(held)} lost hosts held against the newest replica: the job went on from it"
            f" {held.count(0)} times, from a newer step {sum(steps > 0 for steps in held)} times,"
            f" from an older one {sum(steps < 0 for steps in held)} times"
        )
    print("\n".join(problems) or "no hang, no process left behind, no other loss")
    if options.output is not None:
        document = {
            "seed": options.seed, "problems": problems, "losses_compared": compared,
            "recoveries": [asdict(r) for r in recoveries],
        }  # fmt: skip
        options.output.write_text(json.dumps(document), encoding="utf-8")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
