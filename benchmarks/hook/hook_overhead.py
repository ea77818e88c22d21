"""What the hook costs a training step.

Readings that must agree: nanoseconds a hooked call in a tight loop, instructions a call as
callgrind counts them, a collective after the work of a step (hook_spaced.py), and the calls that
a step of examples/train.py really makes, taken from the recorder of that very run; and then, as a
check on the product of those, whole runs with and without the hook in turn:

    python benchmarks/hook/hook_overhead.py
    python benchmarks/hook/hook_overhead.py --pairs 12 --steps 400      # a narrower interval
    python benchmarks/hook/hook_spaced.py                               # spaced collectives alone
"""

from __future__ import annotations

import argparse
import math
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.hook.hook_spaced import (
    compile_driver,
    hooked_environment,
    measure_spaced,
    run_checked,
    spaced_table,
)
from relkit.hook.model import HookState
from relkit.hook.reader import read_state, state_files
from relkit.output import table
from tests.ports import free_port

_ROOT = Path(__file__).resolve().parents[2]
_LIMIT_S = 600.0
_WARM_STEPS = 20
_TARGET_PERCENT = 0.3

# gloo's ring sends and receives a few segments a collective; this many is more than it does.
_INNER_PER_COLLECTIVE = 64

# 97.5 % points of Student's t for 1, 2, ... degrees of freedom.
_STUDENT = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14)


@dataclass(frozen=True, slots=True)
class CallCost:
    """What one kind of hooked call costs, with and without the hook.

    Args:
        kind: "gemm" (timed), "small" (a product that is only counted), "collective", or "inner".
        bare_ns, hooked_ns: least time of a call over the rounds, loop included: what a busy
            machine adds is not the hook's.
        instructions: that the hook adds, as callgrind counts; None without valgrind.
    """

    kind: str
    bare_ns: float
    hooked_ns: float
    instructions: float | None

    @property
    def added_ns(self) -> float:
        return max(0.0, self.hooked_ns - self.bare_ns)


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the example.

    Args:
        step_s: time a step on rank 0; cpu_s: CPU time of all ranks from start to end.
        states: their recorders, none without the hook.
    """

    step_s: float
    cpu_s: float
    states: tuple[HookState, ...]


def _instructions(command: list[str], env: Mapping[str, str]) -> int:
    valgrind = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
    done = run_checked([*valgrind, *command], env)
    return int(done.stderr.partition("Collected :")[2].split()[0])


def _instructions_a_call(command: list[str], env: Mapping[str, str]) -> float:
    few, many = 1_000, 101_000
    return (
        _instructions([*command, str(many)], env) - _instructions([*command, str(few)], env)
    ) / (many - few)


def measure_calls(folder: Path, calls: int, rounds: int) -> list[CallCost]:
    """Time and count the kinds of hooked call, bare and hooked in turn."""
    library, program = compile_driver(folder, "hook_calls")
    records = folder / "calls"
    records.mkdir(mode=0o700)
    hooked_env = hooked_environment(records)
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        print("valgrind is not installed (Debian: apt-get install valgrind): no instructions")
    costs = []
    for kind in ("gemm", "small", "collective", "inner"):
        command = [str(program), str(library), kind]
        bare, hooked = [], []
        for _ in range(rounds):
            bare.append(float(run_checked([*command, str(calls)], os.environ).stdout))
            hooked.append(float(run_checked([*command, str(calls)], hooked_env).stdout))
        added = None
        if valgrind is not None:
            added = _instructions_a_call(command, hooked_env) - _instructions_a_call(
                command, os.environ
            )
        costs.append(CallCost(kind, min(bare), min(hooked), added))
    return costs


def run_example(folder: Path, ranks: int, steps: int, with_hook: bool) -> Run:
    """Train for some steps and take the time between two lines that rank 0 prints."""
    port = str(free_port())
    records = Path(tempfile.mkdtemp(dir=folder))
    env = hooked_environment(records) if with_hook else dict(os.environ)
    env |= {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    command = [sys.executable, str(_ROOT / "examples" / "train.py")]
    command += ["--steps", str(steps + _WARM_STEPS + 1), "--log-every", str(_WARM_STEPS)]
    cpu_before_s = _children_cpu_s()
    children = [
        subprocess.Popen(
            command,
            env={**env, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
            text=True,
        )
        for rank in range(ranks)
    ]
    try:
        seen: dict[int, float] = {}
        assert children[0].stdout is not None
        for line in children[0].stdout:
            words = line.split()
            if words[:1] == ["step"]:
                seen[int(words[1])] = time.monotonic()
        for child in children:
            if child.wait(_LIMIT_S) != 0:
                raise SystemExit(f"{' '.join(command)} failed with exit code {child.returncode}")
    finally:
        for child in children:
            child.kill()
            child.wait()
    first, last = _WARM_STEPS, max(seen)
    states = tuple(read_state(path) for path in state_files(records))
    cpu_s = _children_cpu_s() - cpu_before_s
    return Run((seen[last] - seen[first]) / (last - first), cpu_s, states)


def _children_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _calls_a_step(run: Run, steps: int) -> dict[str, float]:
    """Hooked calls a step on the busiest rank: "timed", "small" and "collective" ones."""
    busiest = max(run.states, key=lambda state: state.finished)
    collectives = sum(c.seq + 1 for c in busiest.communicators)
    if not collectives:
        raise SystemExit("the recorder of the example holds no collective")
    return {
        "small": busiest.counted / steps,
        "collective": collectives / steps,
        "gemm": (busiest.finished - busiest.counted - collectives) / steps,
        "inner": collectives * _INNER_PER_COLLECTIVE / steps,
    }


def _interval(differences: list[float]) -> tuple[float, float]:
    """Mean, and half the width of its 95 % confidence interval."""
    mean = statistics.mean(differences)
    freedom = len(differences) - 1
    student = _STUDENT[freedom - 1] if freedom <= len(_STUDENT) else 2.0
    return mean, student * statistics.stdev(differences) / math.sqrt(len(differences))


def main() -> None:
    """Print the costs, and exit with 1 if they are above the target."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--calls", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--pairs", type=int, default=6, help="runs with and without, at least 2")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        costs = measure_calls(folder, options.calls, options.rounds)
        rows = [
            (
                cost.kind,
                f"{cost.bare_ns:.1f}",
                f"{cost.hooked_ns:.1f}",
                f"{cost.added_ns:.1f}",
                "-" if cost.instructions is None else f"{cost.instructions:.0f}",
            )
            for cost in costs
        ]
        titles = ("hooked call", "bare ns", "hooked ns", "added ns", "added instructions")
        print(table(rows, titles))
        print("\n" + spaced_table(measure_spaced(folder)) + "\n")
        pairs: list[tuple[Run, Run]] = []
        for number in range(max(2, options.pairs)):
            # Which comes first alternates, so that a machine that warms up favours neither.
            order = (True, False) if number % 2 else (False, True)
            runs = {hook: run_example(folder, options.ranks, options.steps, hook) for hook in order}
            pairs.append((runs[False], runs[True]))
    steps = options.steps + _WARM_STEPS + 1
    calls = _calls_a_step(pairs[0][1], steps)
    step_s = statistics.median(bare.step_s for bare, _ in pairs)
    ns = sum(calls[cost.kind] * cost.added_ns for cost in costs)
    percent = 100 * ns / (step_s * 1e9)
    print(
        f"\na step of examples/train.py takes {step_s * 1e3:.2f} ms and makes hooked calls: "
        f"{calls['gemm']:.0f} gemm, {calls['small']:.0f} small, {calls['collective']:.1f} "
        f"collective, at most {calls['inner']:.0f} inner\n"
        f"calls a step x cost of one: {ns / 1e3:.1f} us = {percent:.3f} % of step time "
        f"(target: at most {_TARGET_PERCENT} %)"
    )
    print(f"A/B, {len(pairs)} alternated pairs, {options.ranks} ranks, {options.steps} steps:")
    differences = {
        "step time": [100 * (hooked.step_s / bare.step_s - 1) for bare, hooked in pairs],
        "CPU time": [100 * (hooked.cpu_s / bare.cpu_s - 1) for bare, hooked in pairs],
    }
    for what, percents in differences.items():
        mean, half = _interval(percents)
        print(
            f"  {what}: {mean:+.2f} %, 95 % confidence interval "
            f"{mean - half:+.2f} to {mean + half:+.2f} %"
        )
    raise SystemExit(0 if percent <= _TARGET_PERCENT else 1)


if __name__ == "__main__":
    main()
