"""What the hook adds to a collective that comes after the work of a training step.

In a tight loop all that a call needs is in the nearest cache. In a step it is not: between two
collectives a process works its way through more memory than the caches hold. So native calls are
made 2.5, 5 and 15 ms apart, with such work between them (hook_spaced.c), by processes with and
without the hook in turn:

    python benchmarks/hook/hook_spaced.py
    python benchmarks/hook/hook_spaced.py --gaps-ms 2.5 50 --rounds 12
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from relkit.hook.environment import worker_environment
from relkit.output import table

_ROOT = Path(__file__).resolve().parents[2]
_LIMIT_S = 600.0
GAPS_MS = (2.5, 5.0, 15.0)


@dataclass(frozen=True, slots=True)
class SpacedCost:
    """Collectives so far apart.

    Args:
        gap_ms: work between two of them; bare_ns: median call without the hook, of each round.
        added_ns: median call with the hook less that of the same round without.
    """

    gap_ms: float
    bare_ns: tuple[float, ...]
    added_ns: tuple[float, ...]


def run_checked(command: Sequence[str], env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run to the end; the benchmark is over where that fails."""
    done = subprocess.run(
        command, env=dict(env), capture_output=True, text=True, timeout=_LIMIT_S, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done


def compile_driver(folder: Path, name: str) -> tuple[Path, Path]:
    """The stand-in for torch's library, and benchmarks/NAME.c, which calls into it."""
    library, program = folder / "libtorch_cpu.so", folder / name
    compiler = shutil.which("cc") or "gcc"
    stand_in = str(_ROOT / "native" / "tests" / "fake_torch.c")
    shared = ["-shared", "-fPIC", "-Wl,-soname,libtorch_cpu.so"]
    run_checked([compiler, "-O2", *shared, stand_in, "-o", str(library)], os.environ)
    driver = str(_ROOT / "benchmarks" / "hook" / f"{name}.c")
    run_checked([compiler, "-O2", driver, "-o", str(program)], os.environ)
    return library, program


def hooked_environment(folder: Path) -> dict[str, str]:
    """Of a worker under the hook, whose recorder file goes to `folder`."""
    return {**os.environ, **worker_environment(folder, os.environ)}


def measure_spaced(
    folder: Path, gaps_ms: Sequence[float] = GAPS_MS, *, rounds: int = 5, calls: int = 100
) -> list[SpacedCost]:
    """Rounds of `calls` calls bare and hooked, in turn.

    Args:
        folder: for programs and recorder files; on a tmpfs, as those of a job are.
    """
    library, program = compile_driver(folder, "hook_spaced")
    costs = []
    for gap_ms in gaps_ms:
        command = [str(program), str(library), str(calls), str(1e3 * gap_ms)]
        bare, added = [], []
        for number in range(rounds):
            median: dict[bool, float] = {}
            for hook in (True, False) if number % 2 else (False, True):
                env: Mapping[str, str] = os.environ
                if hook:
                    env = hooked_environment(Path(tempfile.mkdtemp(dir=folder)))
                lines = run_checked(command, env).stdout.split()
                median[hook] = statistics.median(map(float, lines))
            bare.append(median[False])
            added.append(median[True] - median[False])
        costs.append(SpacedCost(gap_ms, tuple(bare), tuple(added)))
    return costs


def spaced_table(costs: Sequence[SpacedCost]) -> str:
    """One line a gap: medians over the rounds, and the least and the most."""
    rows = [
        (
            f"{cost.gap_ms:g} ms",
            f"{statistics.median(cost.bare_ns):.0f}",
            f"{statistics.median(cost.added_ns):.0f}",
            f"{min(cost.added_ns):.0f} to {max(cost.added_ns):.0f}",
        )
        for cost in costs
    ]
    return table(rows, ("work between collectives", "bare ns", "added ns", "rounds"))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--gaps-ms", type=float, nargs="+", default=GAPS_MS)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--calls", type=int, default=100, help="a round")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        costs = measure_spaced(
            Path(name), options.gaps_ms, rounds=options.rounds, calls=options.calls
        )
    print(spaced_table(costs))
    print(f"load average: {' '.join(f'{load:.1f}' for load in os.getloadavg())}")


if __name__ == "__main__":
    main()
