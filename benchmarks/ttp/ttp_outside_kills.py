"""SIGKILLs from outside, at moments that nothing in the job chooses: what is lost of training.

    python benchmarks/ttp/ttp_outside_kills.py                     every layout, 300 kills
    python benchmarks/ttp/ttp_outside_kills.py --busy 2 --layouts "TP2xDP2 SP" --kills 20 -o o.json

A job trains with dropout. Some time after its first new step one random rank is killed. It is then
started again from its newest checkpoint, and so on to its end. Checked of each kill, with every
shard held by another living rank:

- the survivors save, exit with 75, and leave no temporary folder;
- the step that they save is the last one that rank 0 had written down, or a later one; one less
  where the kill came between the update of one rank and of another (counted beside it);
- where the job had come to its end meanwhile, all of it was saved;
- the checkpoint equals that of a run without faults and without try-to-persist, to the last bit;

and of the whole job that every loss, gradient norm and evaluation is that run's. Periodic
checkpoints are written so seldom that they cannot stand in for a save.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

import torch

from relkit.checkpoint import iteration_folder
from relkit.trainer.run.loop import pretrain
from relkit.ttp.save_outcome import EXIT_SAVED
from tests.ttp.jobs.compare import latest_differs, numbers
from tests.ttp.jobs.forked_ranks import Ended, load_what_ranks_load, run_ranks
from tests.ttp.jobs.matrix import LAYOUTS, Layout, configured, write_text

CASES = ("DP4", "TP2xDP2", "TP2xDP2 SP", "PP2xDP2", "PP2xDP2 VPP2", "EP2xDP4")
STEPS = 150
LIMIT_S = 300.0
# So long after the first new step, at most.
_LATEST_S = 3.0


class OneKill:
    """Kills one rank, once, when its moment has come.

    Args:
        rank: which; delay_s: after the first new step; events: rank 0's.
    """

    def __init__(self, rank: int, delay_s: float, events: Path) -> None:
        self.rank, self.delay_s, self.happened = rank, delay_s, False
        self._events = events
        self._size = _size(events)
        self._due_s = 0.0

    def __call__(self, pids: Sequence[int]) -> None:
        """See `run_ranks`."""
        if self.happened:
            return
        now = time.monotonic()
        if not self._due_s and _last_step(self._events, self._size):
            self._due_s = now + self.delay_s
        if self._due_s and now >= self._due_s and pids[self.rank]:
            os.kill(pids[self.rank], signal.SIGKILL)
            self.happened = True


@dataclass(slots=True)
class Tally:
    """What was seen of one layout."""

    kills: int = 0
    saved: int = 0
    at_its_end: int = 0
    one_less: int = 0
    seconds: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


def main(argv: Sequence[str] | None = None) -> int:
    """Kill ranks; 1 where anything was not as it should be."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--layouts", nargs="*", default=list(CASES), choices=list(LAYOUTS))
    parser.add_argument("--kills", type=int, default=50, help="of each layout")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--busy", type=int, default=0, help="endless loops beside the job")
    parser.add_argument("-o", "--output", type=Path, help="figures as JSON")
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    tallies: dict[str, Tally] = {}
    print("layout        kills  saved  at its end  one less  attempt, s  minutes", flush=True)
    with tempfile.TemporaryDirectory(prefix="relkit-ttp-") as made, busy(options.busy):
        folder = Path(made)
        data = write_text(folder)
        for name in options.layouts:
            began_s = time.monotonic()
            dice = random.Random(f"{options.seed} {name}")  # noqa: S311 (nothing secret)
            tally = tallies[name] = run_layout(name, options.kills, dice, data, folder)
            print(
                f"{name:13} {tally.kills:5} {tally.saved:6} {tally.at_its_end:11}"
                f" {tally.one_less:9} {statistics.median(tally.seconds or [0.0]):11.1f}"
                f" {(time.monotonic() - began_s) / 60:8.1f}",
                flush=True,
            )
            print("\n".join(tally.wrong), end="\n" if tally.wrong else "", flush=True)
    if options.output:
        figures = {name: asdict(tally) for name, tally in tallies.items()}
        options.output.write_text(json.dumps(figures, indent=2), encoding="utf-8")
    return 1 if any(tally.wrong for tally in tallies.values()) else 0


def run_layout(name: str, kills: int, dice: random.Random, data: str, folder: Path) -> Tally:
    """Jobs of a layout until so many ranks were killed, or something was wrong.

    Args:
        name: of LAYOUTS; data: prefix of a data set; folder: for everything.
    """
    layout, tally = LAYOUTS[name], Tally()
    reference = folder / name / "undisturbed"
    ended = _attempt(layout, data, reference, 0, ttp=False, every=1)
    if any(ended.codes):
        raise SystemExit(f"{name}: the undisturbed run failed: {ended.said[-2000:]}")
    load_what_ranks_load(reference / "notes")
    job = 0
    while tally.kills < kills and not tally.wrong:
        place = folder / name / f"job {job}"
        _one_job(layout, data, place, reference, kills, dice, tally)
        if not tally.wrong and numbers(place) != numbers(reference):
            tally.wrong.append("numbers differ from the undisturbed run's")
        tally.wrong = [f"{name} job {job}: {sentence}" for sentence in tally.wrong]
        if not tally.wrong:
            shutil.rmtree(place)
        job += 1
    return tally


def _one_job(
    layout: Layout, data: str, place: Path, reference: Path, kills: int, dice: random.Random,
    tally: Tally,
) -> None:  # fmt: skip
    events, save = place / "out" / "events" / "rank_0.jsonl", place / "save"
    for run in range(10 * STEPS):
        before = iteration_folder.latest(save) or 0
        kill = None
        if tally.kills < kills:
            delay_s = dice.uniform(0.0, _LATEST_S)
            kill = OneKill(dice.randrange(layout.ranks), delay_s, events)
        offset = _size(events)
        ended = _attempt(layout, data, place, run, ttp=True, every=10 * STEPS, kill=kill)
        tally.seconds.append(ended.wall_s)
        if kill is None or not kill.happened or -signal.SIGKILL not in ended.codes:
            if any(ended.codes):
                tally.wrong.append(f"run {run}, nobody killed: {ended.codes}\n{ended.said[-3000:]}")
            return
        tally.kills += 1
        last = _last_step(events, offset)
        wrong = _judge(tally, ended, save, before, last)
        if differs := latest_differs(save, reference / "save"):
            wrong.append(differs)
        if wrong:
            what = f"run {run}: rank {kill.rank} killed after {kill.delay_s:.2f} s at step {last}: "
            tally.wrong = [what + sentence for sentence in wrong] + [ended.said[-3000:]]
            return


def _judge(tally: Tally, ended: Ended, save: Path, before: int, last: int) -> list[str]:
    """What is wrong with the end of an attempt in which one rank was killed.

    Args:
        before: step of the checkpoint that it began with, 0 for none.
        last: the last step that rank 0 wrote down in it, 0 for none.
    """
    codes = {code for code in ended.codes if code != -signal.SIGKILL}
    now = iteration_folder.latest(save) or 0
    if ended.hung:
        return [f"a rank had to be killed after {LIMIT_S:g} s: {ended.codes}"]
    wrong = [f"left {path.name}" for path in save.glob("iter_*_tmp")]
    if now < before:
        wrong.append(f"the tracker went back from {before} to {now}")
    elif last and now < last - 1:
        wrong.append(f"step {last} was written down and {now} is what is left: {ended.outcome}")
    elif codes == {EXIT_SAVED}:
        tally.saved += 1
        tally.one_less += bool(last) and now < last
    elif codes <= {0, EXIT_SAVED} and now >= last:
        tally.at_its_end += 1  # all steps were done and saved
    else:
        wrong.append(f"it ended with {sorted(codes)}: {ended.outcome}")
    return wrong


def _attempt(
    layout: Layout, data: str, place: Path, run: int, *, ttp: bool, every: int,
    kill: OneKill | None = None,
) -> Ended:  # fmt: skip
    notes = place / "notes"
    notes.mkdir(parents=True, exist_ok=True)
    config = configured(layout, data, place, STEPS, save_interval=every)
    return run_ranks(
        partial(pretrain, config), layout.ranks, attempt=run, notes=notes, limit_s=LIMIT_S,
        environment={} if ttp else {"ENABLE_TTP": "False"}, meanwhile=kill,
    )  # fmt: skip


@contextmanager
def busy(loops: int) -> Iterator[None]:
    """So many processes that never wait, for as long as it lasts."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(loops)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _size(events: Path) -> int:
    return events.stat().st_size if events.exists() else 0


def _last_step(events: Path, offset: int = 0) -> int:
    """The last step written down after this many bytes; 0 for none."""
    if not events.exists():
        return 0
    with events.open("rb") as stream:
        stream.seek(offset)
        fresh = stream.read().decode(errors="replace")
    steps = [0]
    for line in fresh.splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue  # it was being written when its rank was killed
        if event.get("event") == "step":
            steps.append(int(event["step"]))
    return max(steps)


if __name__ == "__main__":
    sys.exit(main())
