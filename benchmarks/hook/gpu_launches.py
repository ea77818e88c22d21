"""What the hook adds to a kernel launch on a real NVIDIA GPU.

An empty kernel is launched over and over by a C++ program (gpu_launches.cu), in processes with and
without the hook in turn. It needs nvcc, a GPU and a hook that was built; no torch:

    python benchmarks/hook/gpu_launches.py
    python benchmarks/hook/gpu_launches.py --rounds 20
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from statistics import median

from relkit.hook.environment import worker_environment
from relkit.output import table

_SOURCE = Path(__file__).with_suffix(".cu")
_LIMIT_S = 120.0
# What is preloaded, and how often a launch is timed; None: nothing is.
KINDS: Mapping[str, Mapping[str, str] | None] = {
    "no hook": None,
    "the hook": {},
    "the hook, no launch timed": {"RELKIT_HOOK_SAMPLE": "0"},
    "the hook, every launch timed": {"RELKIT_HOOK_SAMPLE": "1"},
}


def main() -> None:
    """Build, measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7, help="processes of each kind (7)")
    rounds: int = parser.parse_args().rounds
    measured: dict[str, list[tuple[float, ...]]] = {kind: [] for kind in KINDS}
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "gpu_launches")
        # With the runtime as a library of its own, as torch has it.
        build = ["nvcc", "-O2", "-cudart", "shared", "-o", str(program), str(_SOURCE)]
        subprocess.run(build, check=True, timeout=_LIMIT_S)
        kinds = list(KINDS)
        for turn in range(rounds):
            at = turn % len(kinds)
            for kind in kinds[at:] + kinds[:at]:
                measured[kind].append(launched(program, KINDS[kind]))
    rows = [
        [kind, *(f"{median(values) / 1e3:.2f}" for values in zip(*runs, strict=True))]
        for kind, runs in measured.items()
    ]
    print(f"us, medians of {rounds} processes; the first is the 5th percentile of each")
    print(table(rows, ["", "launch, fastest", "launch", "launch and wait"]))


def launched(program: Path, environment: Mapping[str, str] | None) -> tuple[float, ...]:
    """(5th percentile and median of a launch, median of a launch that is waited for) in ns.

    Args:
        environment: of the hook; None: without it.
    """
    base = dict(os.environ)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        if environment is not None:
            base |= environment
            base |= worker_environment(Path(folder), base)
        done = subprocess.run(
            [str(program)], env=base, capture_output=True, text=True, timeout=_LIMIT_S, check=True
        )
    return tuple(map(float, done.stdout.split()))


if __name__ == "__main__":
    main()
