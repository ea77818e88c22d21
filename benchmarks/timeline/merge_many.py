"""What `relkit timeline merge` takes for a large job: memory and processor time.

    python benchmarks/timeline/merge_many.py                # 1,000 ranks of 125 hosts, 100 steps
    python benchmarks/timeline/merge_many.py --ranks 8 --steps 10

The recordings are simulated (tests/timeline/made_up.py): 20 collectives a step and a product, the
clocks of the hosts up to a second apart.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from relkit.output import table
from tests.timeline import made_up

RANKS_A_HOST = 8
COLLECTIVES = 20
LIMIT_S = 3600.0


@dataclass(frozen=True, slots=True)
class Cost:
    """What one merge has taken.

    Args:
        slices: in the trace; trace_mib: its size; cpu_s: user and system; peak_mib: resident.
        error_us: of the clock that is known least.
    """

    slices: int
    trace_mib: float
    cpu_s: float
    peak_mib: float
    error_us: float


def merge_cost(folder: Path, ranks: int, steps: int) -> Cost:
    """Simulate a job and merge it.

    Args:
        folder: empty.
    """
    hosts = max(1, ranks // RANKS_A_HOST)
    skews = np.random.default_rng(1).integers(-(10**9), 10**9, hosts).tolist()
    made_up.job(
        folder / "recorded", ranks, hosts=hosts, steps=steps, collectives=COLLECTIVES,
        skew_ns=dict(enumerate(skews)),
    )  # fmt: skip
    trace = folder / "trace.pftrace"
    command = [sys.executable, "-m", "relkit", "timeline", "merge", str(folder / "recorded")]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [*command, "-o", str(trace), "--json"], capture_output=True, timeout=LIMIT_S, check=True
    )
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    said = json.loads(done.stdout)
    return Cost(
        said["slices"],
        trace.stat().st_size / (1 << 20),
        used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime,
        used.ru_maxrss / 1024,
        max(clock["error_us"] for clock in said["clocks"]),
    )


def main() -> int:
    """Write recordings, merge them, and say what it took."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ranks", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=100)
    options = parser.parse_args()
    began_s = time.process_time()
    with tempfile.TemporaryDirectory() as made:
        cost = merge_cost(Path(made), options.ranks, options.steps)
    rows = [[
        f"{options.ranks:,}", f"{options.steps}", f"{cost.slices:,}", f"{cost.trace_mib:.0f}",
        f"{cost.cpu_s:.1f}", f"{cost.peak_mib:.0f}", f"{cost.error_us:.0f}",
    ]]  # fmt: skip
    titles = ["ranks", "steps", "slices", "trace, MiB", "cpu, s", "peak, MiB", "clocks, us"]
    sys.stdout.write(table(rows, titles) + "\n")
    sys.stderr.write(f"simulated in {time.process_time() - began_s:.1f} s\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
