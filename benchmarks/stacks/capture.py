"""How long a capture takes and how long it freezes the process, against its peers.

A real torch process hangs in a gloo all_reduce; a native thread inside it records the longest
time that it could not run. relkit (hook + py-spy without a stop), py-spy --native, pystack
--native-all and gdb then look at it in turn, several rounds, in one run:

    python benchmarks/stacks/capture.py --rounds 7
    python benchmarks/stacks/capture.py --ranks 8        # also: all ranks of a host at once
"""

from __future__ import annotations

import argparse
import contextlib
import json
import mmap
import os
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from relkit.hook.environment import prepare_job_dir, remove_job_dir, worker_environment
from relkit.output import table
from relkit.process.bounded_child import find_tool
from relkit.stacks.dump.capture import capture_ranks
from relkit.stacks.engines.base import Target
from relkit.stacks.engines.hook_engine import HookEngine
from relkit.stacks.symbolise import Symboliser

_HERE = Path(__file__).resolve().parent
_LIMIT_S = 120.0


@dataclass(frozen=True, slots=True)
class Reading:
    """One collector's figures over all rounds.

    Args:
        name: the collector.
        wall_s: median time of the whole call.
        freeze_s: median of the longest stall seen from inside; worst_freeze_s: the largest.
        threads: native threads seen, 0 where it was not counted.
    """

    name: str
    wall_s: float
    freeze_s: float
    worst_freeze_s: float
    threads: int


def _compile_heartbeat(folder: Path) -> Path:
    library = folder / "heartbeat.so"
    source = str(_HERE / "heartbeat.c")
    subprocess.run(
        ["cc", "-O2", "-shared", "-fPIC", "-pthread", "-o", str(library), source],
        check=True,
        timeout=_LIMIT_S,
    )
    return library


@contextlib.contextmanager
def hung_job(ranks: int, folder: Path, heartbeat: Path) -> Iterator[list[Target]]:
    """A gloo job of `ranks` processes under the hook, hung in all_reduce; reaped at the end."""
    job_id = f"benchmark-{secrets.token_hex(4)}"
    job_folder = prepare_job_dir(job_id, ranks)
    (folder / "beat").write_bytes(bytes(8))
    store = str(folder / f"store-{job_id}")
    processes: list[subprocess.Popen[str]] = []
    try:
        for rank in range(ranks):
            environment = {
                **os.environ,
                **{"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks)},
                "OMP_NUM_THREADS": "2",
            }
            environment |= worker_environment(job_folder, environment)
            beat = str(folder / "beat") if rank == 0 else ""
            script = str(_HERE / "capture_target.py")
            arguments = [str(heartbeat), beat, store, str(rank), str(ranks)]
            processes.append(
                subprocess.Popen(
                    [sys.executable, script, *arguments],
                    env=environment,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
        targets = []
        for rank, process in enumerate(processes):
            if process.stdout is None or process.stdout.readline() != "up\n":
                raise SystemExit(f"rank {rank} did not come up")
            path = job_folder / f"{process.pid}.rkhook"
            targets.append(Target(process.pid, rank, ranks, "here", job_id, path))
        yield targets
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.communicate()
        remove_job_dir(job_folder)


def _command(argv: Sequence[str]) -> Callable[[], int]:
    def run() -> int:
        subprocess.run(
            argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=_LIMIT_S, check=True
        )
        return 0

    return run


def _collectors(target: Target) -> dict[str, Callable[[], int]]:
    def relkit() -> int:
        (dump,) = capture_ranks([target], deadline_s=10, native_fallback=False)
        if not dump.native or not dump.python:
            raise SystemExit(f"relkit's capture is incomplete: {dump.notes}")
        return len(dump.native)

    pid = str(target.pid)
    found: dict[str, Callable[[], int]] = {"relkit": relkit, "(nothing, 0.1 s)": _nothing}
    for name, tool, arguments in (
        ("py-spy --native", "py-spy", ["dump", "--native", "--json", "--pid", pid]),
        ("pystack --native-all", "pystack", ["remote", "--native-all", pid]),
        ("gdb", "gdb", ["-q", "-nx", "-batch", "-ex", "thread apply all bt", "-p", pid]),
    ):
        path = find_tool(tool)
        if path is None:
            print(f"{tool} is not installed: left out", file=sys.stderr)
            continue
        found[name] = _command([path, *arguments])
    return found


def _nothing() -> int:
    time.sleep(0.1)
    return 0


def compare(target: Target, beat: Path, rounds: int) -> list[Reading]:
    """All collectors in turn, `rounds` times."""
    walls: dict[str, list[float]] = {}
    freezes: dict[str, list[float]] = {}
    threads: dict[str, int] = {}
    with beat.open("r+b") as stream, mmap.mmap(stream.fileno(), 8) as page:
        for number in range(rounds + 1):
            for name, collect in _collectors(target).items():
                page[:8] = bytes(8)
                began = time.perf_counter()
                threads[name] = collect()
                wall_s = time.perf_counter() - began
                # One more beat, so that a stall that has just ended is in.
                time.sleep(0.001)
                if number > 0:  # the first round warms files and symbol tables for all alike
                    walls.setdefault(name, []).append(wall_s)
                    stall_s = int.from_bytes(page[:8], sys.byteorder) / 1e9
                    freezes.setdefault(name, []).append(stall_s)
    return [
        Reading(
            name,
            statistics.median(walls[name]),
            statistics.median(freezes[name]),
            max(freezes[name]),
            threads[name],
        )
        for name in walls
    ]


def _all_ranks(targets: Sequence[Target], rounds: int) -> dict[str, float]:
    walls, freezes = [], []
    for _ in range(rounds + 1):
        began = time.perf_counter()
        dumps = capture_ranks(targets, deadline_s=10, native_fallback=False)
        walls.append(time.perf_counter() - began)
        if not all(dump.native and dump.python for dump in dumps):
            raise SystemExit(f"incomplete: {[dump.notes for dump in dumps]}")
        freezes += [HookEngine().native(target, 2.0).freeze_s for target in targets]
    began = time.perf_counter()
    Symboliser().warm(targets[0].pid)
    warm_s = time.perf_counter() - began
    return {
        "ranks": len(targets),
        "first_wall_s": walls[0],
        "wall_s": statistics.median(walls[1:]),
        "freeze_s": statistics.median(freezes),
        "worst_freeze_s": max(freezes),
        "symbol_tables_s": warm_s,
    }


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.2f}"


def _print(readings: Sequence[Reading], job: dict[str, float]) -> None:
    ours = readings[0]
    rows = [
        [
            reading.name,
            _milliseconds(reading.wall_s),
            _milliseconds(reading.freeze_s),
            _milliseconds(reading.worst_freeze_s),
            f"{reading.wall_s / ours.wall_s:.1f}",
            f"{reading.freeze_s / ours.freeze_s:.1f}",
        ]
        for reading in readings
    ]
    header = ["collector", "wall ms", "freeze ms", "worst ms", "wall ratio", "freeze ratio"]
    print(table(rows, header))
    print(
        f"\nall {job['ranks']:.0f} ranks at once: first {_milliseconds(job['first_wall_s'])} ms, "
        f"then {_milliseconds(job['wall_s'])} ms (median); the hook's own freeze "
        f"{_milliseconds(job['freeze_s'])} ms, worst {_milliseconds(job['worst_freeze_s'])} ms; "
        f"symbol tables of one rank from nothing {_milliseconds(job['symbol_tables_s'])} ms"
    )


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=5, help="measured rounds (default 5)")
    parser.add_argument("--ranks", type=int, default=2, help="processes of the job (default 2)")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    options = parser.parse_args()
    if options.ranks < 2 or options.rounds < 1:
        parser.error("at least 2 ranks and 1 round")
    with tempfile.TemporaryDirectory(prefix="relkit-benchmark-") as name:
        folder = Path(name)
        with hung_job(options.ranks, folder, _compile_heartbeat(folder)) as targets:
            # First, so that its first wall time is that of a cold process.
            job = _all_ranks(targets, options.rounds)
            readings = compare(targets[0], folder / "beat", options.rounds)
    if options.json:
        print(json.dumps({"collectors": [asdict(r) for r in readings], "job": job}, indent=2))
    else:
        _print(readings, job)


if __name__ == "__main__":
    main()
