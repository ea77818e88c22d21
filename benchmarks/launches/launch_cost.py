"""What the hook adds to a call into an accelerator's library, in the thread that makes the call.

Against the simulated CUDA runtime and NCCL of native/tests/sim (test doubles, no real device), with
kernels and collectives that take no time, so that a call costs nothing but itself. Programs with
and without the hook run in turn, round by round, and each round is compared with its neighbour:

    python benchmarks/launches/launch_cost.py
    python benchmarks/launches/launch_cost.py --rounds 101

A real launch takes some microseconds of the host: what is added stays, the ratio gets smaller.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from relkit.hook.environment import worker_environment
from relkit.hook.reader import read_state
from relkit.output import table
from tests.native.simulated import build_client, build_platforms


@dataclass(frozen=True, slots=True)
class Case:
    """One kind of call.

    Args:
        title: for the table; scene: of native/tests/clients/launch_cost.c.
        calls: in a round.
        variables: of the hooked program.
        most_ns: what the hook may add to a call, None where there is no such aim.
    """

    title: str
    scene: str
    calls: int
    variables: dict[str, str]
    most_ns: float | None


CASES = (
    Case("launch, none timed", "launches", 400_000, {"RELKIT_HOOK_SAMPLE": "0"}, 40.0),
    Case("launch, one in 64 timed", "launches", 400_000, {}, None),
    Case("collective, timed", "collectives", 400, {}, 1000.0),
)


@dataclass(frozen=True, slots=True)
class Cost:
    """Medians over the rounds, ns a call; `added_ns` is that of the differences."""

    bare_ns: float
    hooked_ns: float
    added_ns: float
    spread_ns: float


@contextmanager
def _program(command: Sequence[str], env: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        command, env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _round(process: subprocess.Popen[str]) -> float:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("go\n")
    process.stdin.flush()
    return float(process.stdout.readline())


def measure(case: Case, program: Path, folder: Path, rounds: int) -> Cost:
    """Run both programs in turn.

    Args:
        folder: an empty one, for the recorder.
        rounds: at least 3.
    """
    command = [str(program), case.scene, str(case.calls)]
    base = {name: value for name, value in os.environ.items() if not name.startswith("RELKIT_")}
    base.pop("LD_PRELOAD", None)
    base["SIM_DIR"] = str(folder)
    hooked_env = {**base, **case.variables}
    hooked_env |= worker_environment(folder, hooked_env)
    bare_ns: list[float] = []
    hooked_ns: list[float] = []
    with ExitStack() as stack:
        bare = stack.enter_context(_program(command, base))
        hooked = stack.enter_context(_program(command, hooked_env))
        for number in range(rounds):
            for process, found in sorted(
                ((bare, bare_ns), (hooked, hooked_ns)), key=lambda each: each[0].pid,
                reverse=number % 2 == 1,
            ):  # fmt: skip
                found.append(_round(process))
        state = read_state(folder / f"{hooked.pid}.rkhook")
        # More than the pool of events has room for would not be timed, and would cost too little.
        assert state.dropped == 0, f"{state.dropped} operations were not timed"
        if case.variables.get("RELKIT_HOOK_SAMPLE") == "0":
            assert state.started == state.counted, "launches were timed"
    added = [b - a for a, b in zip(bare_ns, hooked_ns, strict=True)]
    quarters = statistics.quantiles(added, n=4)
    return Cost(
        statistics.median(bare_ns),
        statistics.median(hooked_ns),
        statistics.median(added),
        quarters[2] - quarters[0],
    )


def _row(case: Case, cost: Cost) -> tuple[str, ...]:
    aim = "" if case.most_ns is None else f"{case.most_ns:.0f}"
    met = "" if case.most_ns is None else ("yes" if cost.added_ns <= case.most_ns else "NO")
    return (
        case.title,
        f"{cost.bare_ns:.1f}",
        f"{cost.hooked_ns:.1f}",
        f"{cost.added_ns:.1f} +- {cost.spread_ns / 2:.1f}",
        f"{cost.hooked_ns / cost.bare_ns:.2f}",
        aim,
        met,
    )


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=41, help="of each program (41)")
    rounds = max(3, parser.parse_args().rounds)
    with tempfile.TemporaryDirectory(prefix="relkit-launch-cost-") as name:
        folder = Path(name)
        build_platforms(folder, ["cuda"])
        program = build_client(
            folder / "program", folder, "cuda", "-O2", sources=("launch_cost.c", "client.c")
        )
        rows = []
        for number, case in enumerate(CASES):
            recorder = folder / f"job{number}"
            recorder.mkdir(mode=0o700)
            rows.append(_row(case, measure(case, program, recorder, rounds)))
    header = ("call", "bare ns", "hooked ns", "added ns", "ratio", "aim ns", "met")
    print(f"{rounds} rounds of each program in turn; medians, and half the middle half's width")
    print(table(rows, header))


if __name__ == "__main__":
    main()
