"""How long a save blocks the loop: relkit into memory, and its peers, in turn.

    python benchmarks/checkpoints/flash.py         1 GB of state on 2 ranks, beside torch's own ways
    python benchmarks/checkpoints/flash.py --gigabytes 0.5 --peer dlrover=VENV/bin/python \\
        --peer lm-resiliency=VENV/bin/python

Each round runs one job of each way, in turn, each with torch's own launcher but relkit's. A job
makes steps without a save and steps with one, in turn: it saves the current state, computes for a
fixed time, and makes AdamW's update. Blocked is the time in the call, plus the time that the update
takes beyond its median without a save, on the slowest rank. The first save of a job is counted
separately. "computed_beside_it" is the share of the compute that was done in spite of the save.

At the end of its last job, relkit restores from memory beside plain copies of the same tensors, and
saves at every step while the host waits for its device, for steps of several lengths. A peer that
fails is named with the last line that it printed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

_MAX_S = 1200.0
_JOB = Path(__file__).resolve().parents[1] / "jobs" / "flash_job.py"
_OWN = "relkit"


def launch(way: str, python: str, ranks: int, folder: Path) -> list[str]:
    """The command that starts a job of one way, without the script."""
    if way == _OWN:
        timeline = ["--timeline-path", str(folder / "timeline")]
        return [
            python,
            "-m",
            "relkit",
            "launch",
            "--no-hook",
            *timeline,
            f"--nproc-per-node={ranks}",
        ]
    return [python, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]


def run(way: str, python: str, options: argparse.Namespace, *, last: bool) -> dict[str, Any] | str:
    """What a job says of its saves; text: why it failed."""
    size_bytes = int(options.gigabytes * 1e9)
    with tempfile.TemporaryDirectory() as named:
        folder = Path(named)
        script = [
            str(_JOB), way, str(folder), str(size_bytes), str(options.steps), str(options.compute_s)
        ]  # fmt: skip
        done = subprocess.run(
            [*launch(way, python, options.ranks, folder), *script, *(["all"] if last else [])],
            capture_output=True, text=True, check=False, timeout=_MAX_S,
        )  # fmt: skip
    for line in done.stdout.splitlines():
        if line.startswith("RESULT "):
            return dict(json.loads(line.removeprefix("RESULT ")))
    errors = [line for line in done.stderr.splitlines() if "Error" in line]
    return (errors or done.stderr.splitlines() or ["nothing was printed"])[0].strip()


def compare(runs: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Medians of each way, and relkit's ratio to the best of the others."""
    result: dict[str, Any] = {}
    for way, jobs in runs.items():
        first = [job["blocked_s"][0] for job in jobs]
        later = [blocked for job in jobs for blocked in job["blocked_s"][1:]]
        result[way] = {
            "first_blocked_s": round(statistics.median(first), 4),
            "blocked_s": round(statistics.median(later or first), 4),
            "all_first_s": [round(one, 3) for one in first],
            "all_s": [round(one, 3) for one in later],
            "computed_beside_it": statistics.median(job["computed_beside_it"] for job in jobs),
        }
        result[way] |= {name: jobs[-1][name] for name in ("restore", "curve") if name in jobs[-1]}
    for name in ("first_blocked_s", "blocked_s"):
        peers = [result[way][name] for way in runs if way != _OWN]
        if peers and _OWN in runs:
            result[f"relkit_to_best_peer_{name}"] = round(result[_OWN][name] / min(peers), 3)
    return result


def main(arguments: list[str] | None = None) -> int:
    """Print the figures, and relkit's ratio to the best of the others."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--gigabytes", type=float, default=1.0, help="of state a rank")
    parser.add_argument("--rounds", type=int, default=3, help="jobs of each way")
    parser.add_argument("--steps", type=int, default=3, help="saves of each job")
    parser.add_argument("--compute-s", type=float, default=3.0, help="of compute a step")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument(
        "--peer", action="append", default=[], metavar="WAY=PYTHON",
        help="dlrover or lm-resiliency, and the Python that has it",
    )  # fmt: skip
    options = parser.parse_args(arguments)
    ways = {_OWN: sys.executable, "torch.save": sys.executable, "dcp.async_save": sys.executable}
    ways |= dict(peer.split("=", 1) for peer in options.peer)
    runs: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    failed: dict[str, str] = {}
    for number in range(options.rounds):
        for way, python in ways.items():
            done = run(way, python, options, last=number == options.rounds - 1)
            print(f"{number} {way}: {json.dumps(done)}", file=sys.stderr, flush=True)
            if isinstance(done, str):
                failed[way] = done
            else:
                runs[way].append(done)
    result = compare(runs) | ({"failed": failed} if failed else {})
    print(json.dumps(result, indent=1))
    return 1 if _OWN in failed else 0


if __name__ == "__main__":
    sys.exit(main())
