"""How long a save blocks the loop: relkit into memory, torch.save, and DCP's async_save, in turn.

    python benchmarks/flash.py                      1 GB of state on 2 ranks
    python benchmarks/flash.py --gigabytes 0.1 --rounds 2

One job runs several rounds. A round is a step without a save, then a step with a save by each of
them. A step saves the current state, computes for a fixed time, and makes AdamW's update. Blocked
is the time in the call, plus the time that the update takes beyond its median without a save, on
the slower rank. The first save is reported separately. "computed_beside_it" is the share of the
compute that was done in spite of the save.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

_MAX_S = 3600.0
_JOB = Path(__file__).parent / "jobs" / "flash_job.py"


def measure(gigabytes: float, rounds: int, compute_s: float, ranks: int, disk: Path) -> Any:  # noqa: ANN401
    """Run the job, and return its summary."""
    done = subprocess.run(
        [
            sys.executable, "-m", "relkit", "launch", "--no-hook", "--nproc-per-node", str(ranks),
            "--timeline-path", str(disk / "timeline"), str(_JOB), str(disk),
            str(int(gigabytes * 1e9)), str(rounds), str(compute_s),
        ],
        capture_output=True, text=True, check=False, timeout=_MAX_S,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def main(arguments: list[str] | None = None) -> int:
    """Print the figures, and relkit's ratio to the best of the others."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--gigabytes", type=float, default=1.0, help="of state a rank")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--compute-s", type=float, default=3.0, help="of compute a step")
    parser.add_argument("--ranks", type=int, default=2)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as disk:
        result = measure(
            options.gigabytes, options.rounds, options.compute_s, options.ranks, Path(disk)
        )
    for name in ("first_blocked_s", "blocked_s"):
        best = min(result[way][name] for way in ("torch.save", "dcp.async_save"))
        result[f"relkit_to_best_peer_{name}"] = round(result["relkit"][name] / best, 3)
    print(json.dumps(result, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
