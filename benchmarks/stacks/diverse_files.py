"""Dump files of a job in which every rank is somewhere else, for benchmarks/bench.py and merge.py.

Each thread's path is drawn at random from hundreds of distinct ones, and the innermost frame's
offset is another on each rank and thread, as in a job whose ranks are caught at work.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass
from pathlib import Path

from relkit.stacks import wire
from relkit.stacks.dumpfile import decode, encode, file_name
from relkit.stacks.model import Frame, RankDump, Role

NATIVE_THREADS, PYTHON_THREADS = 40, 6
DEPTH = 16
# Native paths in which the threads of one Python path are.
NATIVE_OF_PYTHON = 4
_LIBRARIES = ("libtorch_cpu.so", "libtorch_python.so", "libc.so.6", "libgomp.so.1")
_NATIVE_NAME = "at::native::(anonymous namespace)::part_{}(at::TensorIteratorBase&, c10::Scalar)"
_BUILD_ID = "5be1a0c4d29f"
_FIRST_THREAD = 10_000


@dataclass(frozen=True, slots=True)
class _NativePath:
    """A path's bytes: those of the innermost frame up to its offset, and those of all others."""

    leaf: bytes
    outer: bytes


def _paths(rng: random.Random, count: int, native: bool) -> list[tuple[Frame, ...]]:
    """Paths that share their outer frames in part, as call paths do; innermost frame first."""
    paths = []
    for _ in range(count):
        shared = rng.randrange(4, DEPTH)
        numbers = [rng.randrange(3) if i < shared else rng.randrange(400) for i in range(DEPTH)]
        frames = [
            Frame(_NATIVE_NAME.format(100 * i + number), f"/opt/lib/{rng.choice(_LIBRARIES)}", "",
                  _BUILD_ID, 0x41000 + 64 * number)
            if native
            else Frame(f"part_{number}", f"module_{i}.py:{10 + number}", "m")
            for i, number in enumerate(numbers)
        ]  # fmt: skip
        paths.append(tuple(reversed(frames)))
    return paths


def _frame_start(frame: Frame) -> bytes:
    return (
        wire.text_field(1, frame.func)
        + wire.text_field(2, frame.source)
        + wire.text_field(1000, frame.build_id)
    )


def _native_path(frames: tuple[Frame, ...]) -> _NativePath:
    outer = (_frame_start(f) + wire.number_field(1001, f.offset) for f in frames[1:])
    return _NativePath(
        _frame_start(frames[0]), b"".join(wire.bytes_field(3, body) for body in outer)
    )


def _python_path(frames: tuple[Frame, ...]) -> bytes:
    return b"".join(
        wire.bytes_field(7, _frame_start(frame) + wire.text_field(3, frame.module))
        for frame in frames
    )


def _native_thread(number: int, path: _NativePath, offset: int) -> bytes:
    role = Role.MAIN if number == 0 else Role.OTHER
    return b"".join(
        (
            wire.number_field(1, _FIRST_THREAD + number),
            wire.text_field(2, f"thread-{number}"),
            wire.text_field(1000, role.value),
            wire.text_field(1001, "S"),
            wire.bytes_field(3, path.leaf + wire.number_field(1001, offset)),
            path.outer,
        )
    )


def _python_thread(number: int, path: bytes) -> bytes:
    role = Role.MAIN if number == 0 else Role.OTHER
    return b"".join(
        (
            wire.number_field(4, _FIRST_THREAD + number),
            wire.number_field(1, _FIRST_THREAD),
            wire.text_field(3, f"Thread-{number}"),
            wire.text_field(1000, role.value),
            wire.text_field(1001, "S"),
            path,
        )
    )


def write_diverse_files(
    folder: Path, world_size: int, *, paths: int = 400, seed: int = 0, crossed: bool = False
) -> int:
    """Write a world's files into an empty folder; their size in bytes.

    Args:
        paths: distinct ones of native threads; Python threads have a quarter of that.
        crossed: a Python thread is in any native path. Else it is in one of the four that its
            Python path leads to: what a function calls is not drawn anew each time.
    """
    rng = random.Random(seed)  # noqa: S311
    native = [_native_path(frames) for frames in _paths(rng, paths, True)]
    python = [_python_path(frames) for frames in _paths(rng, paths // NATIVE_OF_PYTHON, False)]
    total = 0
    for rank in range(world_size):
        head = RankDump(
            rank, world_size, _FIRST_THREAD, "S (sleeping)", host=f"node{rank // 8}",
            job_id="bench", captured_unix_ns=1, engines=("hook", "py-spy"),
        )  # fmt: skip
        parts = [encode(head)]
        in_python = [rng.randrange(len(python)) for _ in range(PYTHON_THREADS)]
        for i in range(NATIVE_THREADS):
            chosen = rng.randrange(len(native))
            if i < PYTHON_THREADS and not crossed:
                chosen = NATIVE_OF_PYTHON * in_python[i] + chosen % NATIVE_OF_PYTHON
            offset = 0x9000 + 64 * rank + i
            parts.append(wire.bytes_field(1, _native_thread(i, native[chosen], offset)))
        parts += [
            wire.bytes_field(2, _python_thread(i, python[path])) for i, path in enumerate(in_python)
        ]
        name, content = file_name(rank, world_size), b"".join(parts)
        if rank == 0:
            decode(content, name=name)
        (folder / name).write_bytes(content)
        total += len(content)
    # Written back now, so that the disk is idle while the merge is timed.
    os.sync()
    return total
