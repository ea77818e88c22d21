"""Dump files of a job in which every rank is somewhere else, for benchmarks/bench.py.

Each thread's path is drawn at random from hundreds of distinct ones, and the innermost frame's
offset is another on each rank and thread, as in a job whose ranks are caught at work.
"""

from __future__ import annotations

import random
from pathlib import Path

from relkit.stacks.dumpfile import encode, file_name
from relkit.stacks.model import Frame, RankDump, Role, ThreadStack

NATIVE_THREADS, PYTHON_THREADS = 40, 6
DEPTH = 16
_LIBRARIES = ("libtorch_cpu.so", "libtorch_python.so", "libc.so.6", "libgomp.so.1")
_NATIVE_NAME = "at::native::(anonymous namespace)::part_{}(at::TensorIteratorBase&, c10::Scalar)"


def _paths(rng: random.Random, count: int, native: bool) -> list[tuple[Frame, ...]]:
    """Paths that share their outer frames in part, as call paths do; innermost frame first."""
    paths = []
    for _ in range(count):
        shared = rng.randrange(4, DEPTH)
        numbers = [rng.randrange(3) if i < shared else rng.randrange(400) for i in range(DEPTH)]
        frames = [
            Frame(_NATIVE_NAME.format(100 * i + number), f"/opt/lib/{rng.choice(_LIBRARIES)}", "",
                  "5be1a0c4d29f", 0x41000 + 64 * number)
            if native
            else Frame(f"part_{number}", f"module_{i}.py:{10 + number}", "m")
            for i, number in enumerate(numbers)
        ]  # fmt: skip
        paths.append(tuple(reversed(frames)))
    return paths


def write_diverse_files(folder: Path, world_size: int, *, paths: int = 400, seed: int = 0) -> int:
    """Write a world's files into an empty folder; their size in bytes.

    Args:
        paths: distinct ones of native threads; Python threads have a quarter of that.
    """
    rng = random.Random(seed)  # noqa: S311
    native, python = _paths(rng, paths, True), _paths(rng, paths // 4, False)
    total = 0
    for rank in range(world_size):
        threads = []
        for i in range(NATIVE_THREADS):
            leaf, *outer = rng.choice(native)
            leaf = Frame(leaf.func, leaf.source, "", "5be1a0c4d29f", 0x9000 + 64 * rank + i)
            role = Role.MAIN if i == 0 else Role.OTHER
            threads.append(ThreadStack(10_000 + i, f"thread-{i}", (leaf, *outer), role, "S"))
        in_python = [
            ThreadStack(10_000 + i, f"Thread-{i}", rng.choice(python),
                        Role.MAIN if i == 0 else Role.OTHER)
            for i in range(PYTHON_THREADS)
        ]  # fmt: skip
        dump = RankDump(
            rank, world_size, 10_000, "S (sleeping)", tuple(threads), tuple(in_python),
            host=f"node{rank // 8}", job_id="bench", captured_unix_ns=1, engines=("hook", "py-spy"),
        )  # fmt: skip
        data = encode(dump)
        (folder / file_name(rank, world_size)).write_bytes(data)
        total += len(data)
    return total
