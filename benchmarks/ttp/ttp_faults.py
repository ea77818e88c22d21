"""Kills ranks of training jobs again and again, and holds what comes out against undisturbed runs.

    python benchmarks/ttp/ttp_faults.py                    every layout, 300 kills and more
    python benchmarks/ttp/ttp_faults.py --layouts DP4 --kills 20 --seed 3 -o faults.json

A job trains with dropout and is killed at a random phase and step, one rank or two at once, also
while survivors write; it is then started again, and so on to its end. Checked of each attempt:

- it ends by itself; where every shard has a living holder with 75 and a checkpoint of the last step
  that a living rank had committed by its own word, else with 76 and no temporary folder. In some
  attempts, the first one among them, the only living holder has yet to make that step itself;
- that checkpoint is equal, file by file and tensor by tensor, random streams included, to the one
  that a run without try-to-persist and without faults has written of that step;

and of the whole job that all losses, gradient norms and evaluations are those of that run, bit by
bit.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from tests.ttp.jobs.matrix import LAYOUTS, run_layout, write_text


def main(argv: Sequence[str] | None = None) -> int:
    """Run the matrix; 1 where anything was not as it should be."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--layouts", nargs="*", default=list(LAYOUTS), choices=list(LAYOUTS))
    parser.add_argument("--kills", type=int, default=66, help="of each layout")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-o", "--output", type=Path, help="figures as JSON")
    parser.add_argument("--local-copy", action="store_true", help="a copy in place of the barrier")
    options = parser.parse_args(argv)
    form = {"local_copy_os": options.local_copy}
    torch.set_num_threads(1)
    figures: dict[str, Any] = {}
    failed = False
    print("layout       kills   saved  refused  planned again  jobs  kill to rename, ms  minutes")
    with tempfile.TemporaryDirectory(prefix="relkit-ttp-") as made:
        folder = Path(made)
        data = write_text(folder)
        for name in options.layouts:
            started_s = time.monotonic()
            dice = random.Random(f"{options.seed} {name}")  # noqa: S311 (nothing secret)
            tally = run_layout(name, LAYOUTS[name], options.kills, dice, data, folder, form)
            took = tally.seconds or [float("nan")]
            minutes = (time.monotonic() - started_s) / 60
            print(
                f"{name:12} {tally.kills:5} {tally.saved:7} {tally.refused:8} {tally.again:14}"
                f" {tally.ended:5}  median {1e3 * statistics.median(took):.0f}, largest"
                f" {1e3 * max(took):.0f}  {minutes:.1f}",
                flush=True,
            )
            for sentence in tally.wrong:
                print(sentence, flush=True)
            failed = failed or bool(tally.wrong)
            figures[name] = {
                "kills": tally.kills,
                "by_phase": dict(tally.phases),
                "saved": tally.saved,
                "refused": tally.refused,
                "planned_again": tally.again,
                "rolled_forward": tally.forward,
                "jobs": tally.ended,
                "kill_to_rename_s": [round(second, 4) for second in tally.seconds],
                "slowest": tally.slowest,
                "wrong": tally.wrong,
            }
    if options.output:
        options.output.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
