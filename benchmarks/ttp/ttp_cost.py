"""What try-to-persist costs a step, and how long survivors take to save.

    python benchmarks/ttp/ttp_cost.py --steps           on and off in turn, and that no bit differs
    python benchmarks/ttp/ttp_cost.py --save            SIGKILL to the renamed checkpoint, 10 MB
    python benchmarks/ttp/ttp_cost.py --curve loss.svg  200 steps on real text, with kills

Off is the plain distributed optimizer (ZeRO-1) on the same ranks. Runs alternate, and a round's
ratio is that of the two runs in it, by the medians of their steps: a machine that others use too
disturbs it less than times do.
"""

from __future__ import annotations

import argparse
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from relkit.checkpoint import iteration_folder
from relkit.trainer.config.config import TrainerConfig
from relkit.trainer.run.loop import pretrain
from relkit.trainer.telemetry.events import read_events
from relkit.ttp.fault_injector import PHASES, Death, to_environment
from relkit.ttp.save_outcome import EXIT_SAVED
from tests.ttp.jobs.compare import numbers
from tests.ttp.jobs.forked_ranks import Ended, load_what_ranks_load, run_ranks
from tests.ttp.jobs.matrix import LAYOUTS, Layout, configured, from_kill_to_rename, write_text

CHECKOUT = Path(__file__).resolve().parents[2]
WARM_UP = 5
LIMIT_S = 300.0


def larger(config: TrainerConfig) -> TrainerConfig:
    """With 10 MB of parameters and moments, and steps as long as a small model's are."""
    model = replace(config.model, hidden_size=192, num_attention_heads=6, seq_length=64)
    dataset = replace(config.dataset, micro_batch_size=2, global_batch_size=None, micro_batch_num=2)
    training = replace(config.training, eval_interval=None, eval_iters=0)
    return replace(config, model=model, dataset=dataset, training=training)


def run(config: TrainerConfig, layout: Layout, place: Path, number: int, **more: str) -> Ended:
    """One attempt."""
    notes = place / "notes"
    notes.mkdir(parents=True, exist_ok=True)
    return run_ranks(
        partial(pretrain, config),
        layout.ranks,
        attempt=number,
        environment=more,
        notes=notes,
        limit_s=LIMIT_S,
    )


def step_ms(place: Path) -> float:
    """The median step of a run."""
    events = read_events(place / "out" / "events" / "rank_0.jsonl")
    steps = [event["step_s"] for event in events if event["event"] == "step"]
    return 1e3 * float(statistics.median(steps[WARM_UP:]))


def steps(name: str, rounds: int, data: str, folder: Path) -> float:
    """Print and return the median ratio of on over off."""
    layout, ratios = LAYOUTS[name], []
    for number in range(rounds):
        seen, said = {}, {}
        order = ("True", "False") if number % 2 else ("False", "True")
        for switch in order:
            place = folder / f"{name} {number} {switch}"
            config = larger(configured(layout, data, place, 60))
            ended = run(config, layout, place, 0, ENABLE_TTP=switch)
            if any(ended.codes):
                raise SystemExit(ended.said[-2000:])
            load_what_ranks_load(place / "notes")
            seen[switch], said[switch] = step_ms(place), numbers(place)
        ratios.append(seen["True"] / seen["False"])
        equal = "equal in every bit" if said["True"] == said["False"] else "OTHER NUMBERS"
        print(
            f"{name} round {number + 1}: on {seen['True']:.1f} ms, off {seen['False']:.1f} ms,"
            f" ratio {ratios[-1]:.3f}, {equal}",
            flush=True,
        )
    print(f"{name}: median ratio {statistics.median(ratios):.3f}", flush=True)
    return statistics.median(ratios)


def save(name: str, rounds: int, data: str, folder: Path) -> None:
    """Print how long it takes from a death to the renamed checkpoint."""
    layout, took, size = LAYOUTS[name], [], 0
    dice = random.Random(7)  # noqa: S311 (nothing secret)
    for number in range(rounds):
        place = folder / f"{name} {number}"
        config = larger(configured(layout, data, place, 40))
        death = Death(dice.randrange(layout.ranks), dice.choice(PHASES[:7]), 3 + number % 3)
        ended = run(config, layout, place, 0, **to_environment([death]))
        if EXIT_SAVED not in ended.codes:
            raise SystemExit(f"{death}: {ended.outcome}\n{ended.said[-2000:]}")
        step = int(ended.outcome["step"])
        took.append(1e3 * from_kill_to_rename(ended, place / "save"))
        iteration = place / "save" / iteration_folder.iteration_name(step)
        size = sum(path.stat().st_size for path in iteration.rglob("distrib_optim.pt"))
    times = ", ".join(f"{each:.0f}" for each in sorted(took))
    print(
        f"{name}, {layout.ranks} ranks, {size / 1e6:.1f} MB of optimizer state: from SIGKILL to the"
        f" renamed checkpoint {times} ms; median {statistics.median(took):.0f}",
        flush=True,
    )


def curve(data: str, folder: Path, picture: Path) -> int:
    """200 steps with a kill every 20 on average; 1 where anything differs from no kill."""
    layout, dice = LAYOUTS["DP4"], random.Random(3)  # noqa: S311 (nothing secret)
    undisturbed, killed = folder / "undisturbed", folder / "killed"
    config = configured(layout, data, undisturbed, 200)
    run(config, layout, undisturbed, 0, ENABLE_TTP="False")
    config, kills = configured(layout, data, killed, 200, save_interval=50), 0
    for number in range(100):
        before = iteration_folder.latest(killed / "save") or 0
        due = before + dice.randrange(1, 40)
        death = Death(dice.randrange(4), dice.choice(PHASES[:7]), due, number)
        ended = run(config, layout, killed, number, **to_environment([death]))
        kills += -9 in ended.codes
        if not any(ended.codes):
            break
    one, other = numbers(undisturbed), numbers(killed)
    for place, found in ((undisturbed, one), (killed, other)):
        print(f"{place.name}: final loss {found['step 200']}")
    print(f"{kills} kills in 200 steps; every number is {'equal' if one == other else 'NOT EQUAL'}")
    events = [
        f"{name}={place / 'out' / 'events' / 'rank_0.jsonl'}"
        for name, place in (("undisturbed", undisturbed), (f"{kills} kills", killed))
    ]
    line = [sys.executable, "tools/draw_loss.py", *events, "-o", str(picture.resolve())]
    subprocess.run(line, cwd=CHECKOUT, check=True, timeout=60)
    return int(one != other)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure what is asked for; 1 where a number of a run with it differs from one without."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--steps", action="store_true")
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--curve", type=Path, metavar="SVG")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--layouts", nargs="*", default=["DP4"], choices=list(LAYOUTS))
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    code = 0
    with tempfile.TemporaryDirectory(prefix="relkit-ttp-") as made:
        folder = Path(made)
        data = write_text(folder)
        for name in options.layouts:
            if options.steps:
                steps(name, options.rounds, data, folder)
            if options.save:
                save(name, options.rounds, data, folder / "save")
        if options.curve:
            code = curve(data, folder / "curve", options.curve)
    return code


if __name__ == "__main__":
    sys.exit(main())
