"""SIGKILLs from outside on Megatron programs with the one import: what is lost of training.

    python benchmarks/ttp/megatron_kills.py           100 kills, of a loop over megatron-core
    python benchmarks/ttp/megatron_kills.py --kills 5 --layouts DP4
    MEGATRON_PATH=... python benchmarks/ttp/megatron_kills.py --real       Megatron-LM itself

Under `relkit launch`, one random rank is killed some time after the first steps of each start, and
again after the restart. Checked, against a job without the import that nobody disturbs: no step
that was printed is made again, each loss is that job's, and so is all that is on disk, to the last
bit: weights, optimizer, schedule and random streams.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from tests.cluster.conftest import starter
from tests.megatron_adaptor.killed_jobs import Seen, killed_job
from tests.megatron_adaptor.programs import LAYOUTS, mini, real

CASES = ("DP4", "TP2xDP2", "PP2xDP2", "EP2")
# Of one job; a job's undisturbed twin saves each of its steps.
_KILLS_A_JOB = 5


def main(argv: Sequence[str] | None = None) -> int:
    """Kill ranks; 1 where anything was not as it should be."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--layouts", nargs="*", default=list(CASES), choices=list(LAYOUTS))
    parser.add_argument("--kills", type=int, default=25, help="of each layout")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--real", action="store_true", help="Megatron-LM's, from MEGATRON_PATH")
    parser.add_argument("-o", "--output", type=Path, help="what was seen, as JSON")
    options = parser.parse_args(argv)
    jobs: dict[str, list[Seen]] = {name: [] for name in options.layouts}
    print("layout            kills  resumed at the step after  wrong  minutes", flush=True)
    for name in options.layouts:
        began_s = time.monotonic()
        while (killed := _kills(jobs[name])) < options.kills and not _wrong(jobs[name]):
            seed = options.seed + len(jobs[name])
            kills = min(_KILLS_A_JOB, options.kills - killed)
            jobs[name].append(_job(name, kills, seed, real_one=options.real))
            if not jobs[name][-1].killed:
                break
        resumed = sum(len(seen.resumed) for seen in jobs[name])
        wrong = _wrong(jobs[name])
        minutes = (time.monotonic() - began_s) / 60
        line = f"{name:17} {_kills(jobs[name]):5} {resumed:26} {len(wrong):6} {minutes:8.1f}"
        print("\n".join([line, *wrong]), flush=True)
    if options.output:
        figures = {name: [asdict(seen) for seen in of] for name, of in jobs.items()}
        options.output.write_text(json.dumps(figures, indent=2), encoding="utf-8")
    return 1 if any(_wrong(of) for of in jobs.values()) else 0


def _job(name: str, kills: int, seed: int, *, real_one: bool) -> Seen:
    layout = LAYOUTS[name]
    with tempfile.TemporaryDirectory(prefix="relkit-kills-") as made, starter(Path(made)) as start:
        program = real(layout, Path(made)) if real_one else mini(layout)
        return killed_job(start, Path(made), program, layout.ranks, kills, seed)


def _kills(jobs: Sequence[Seen]) -> int:
    return sum(len(seen.killed) for seen in jobs)


def _wrong(jobs: Sequence[Seen]) -> list[str]:
    return [sentence for seen in jobs for sentence in seen.wrong]


if __name__ == "__main__":
    sys.exit(main())
