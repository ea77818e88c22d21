"""Merge speed: relkit's merge of synthetic ranks, against xpu_timer's viewer where given.

    python benchmarks/stacks/merge.py                              4,096 ranks, absolute figures
    python benchmarks/stacks/merge.py --viewer DIR                 the same, in turn with the viewer
    python benchmarks/stacks/merge.py --ranks 1000 --ranks 100000  cost per rank over the world size
    python benchmarks/stacks/merge.py --diverse                    files of which no two are alike

DIR holds py_xpu_timer/stack_viewer.py and its generated hosting_service_pb2.py. Each round runs in
a process of its own. Timed: from files in the page cache to the folded texts on disk (relkit:
py_stack, cpp_stack and mixed_stack; the viewer: py_stack and cpp_stack), without the start of the
interpreter, imports and the SVGs. Memory: the peak resident size of that whole process.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

CHECKOUT = Path(__file__).resolve().parents[2]
LIMIT_S = 900


class Run(NamedTuple):
    """One timed run: wall and CPU seconds, peak resident MB, and lines written."""

    wall_s: float
    cpu_s: float
    rss_mb: float
    lines: int


def _peak_mb() -> float:
    # Not ru_maxrss: across fork and exec that starts with the size of the parent.
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return float("nan")


def _relkit(folder: Path, output: Path) -> Callable[[], None]:
    from relkit.stacks.folded import write_folded
    from relkit.stacks.merge import merge_folder
    from relkit.stacks.native_merge import native_scanner

    if native_scanner() is None:
        print(
            "note: librelkit_merge.so is not built; this is the reader in Python", file=sys.stderr
        )

    def work() -> None:
        merged = merge_folder(folder)
        for tree in (merged.python, merged.native, merged.mixed):
            write_folded(output / f"{tree.view}_stack", tree)
        assert not merged.refused

    return work


def _viewer(folder: Path, output: Path, viewer: Path) -> Callable[[], None]:
    sys.path.insert(0, str(viewer))
    from py_xpu_timer.stack_viewer import StackViewer  # type: ignore[import-not-found]

    def work() -> None:
        StackViewer(str(folder))
        for name in ("py_stack", "cpp_stack"):
            (folder / name).replace(output / name)

    return work


def _lines(output: Path) -> int:
    count = 0
    for path in output.iterdir():
        with path.open("rb") as stream:
            count += sum(part.count(b"\n") for part in iter(lambda: stream.read(1 << 20), b""))
    return count


def _child(who: str, folder: Path, output: Path, viewer: Path | None) -> None:
    work = _viewer(folder, output, viewer) if viewer else _relkit(folder, output)
    start, cpu = time.perf_counter(), time.process_time()
    work()
    wall_s, cpu_s = time.perf_counter() - start, time.process_time() - cpu
    run = Run(wall_s, cpu_s, _peak_mb(), _lines(output))
    print(json.dumps({"who": who, **run._asdict()}))


def _run(who: str, folder: Path, output: Path, viewer: Path | None) -> Run:
    command = [sys.executable, str(Path(__file__).resolve()), "--child", who, str(folder)]
    command += [str(output)] + (["--viewer", str(viewer)] if viewer else [])
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    done = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, text=True, timeout=LIMIT_S, check=True
    )
    found = json.loads(done.stdout.splitlines()[-1])
    return Run(found["wall_s"], found["cpu_s"], found["rss_mb"], found["lines"])


def _warm(folder: Path) -> None:
    for path in folder.iterdir():
        with path.open("rb", buffering=0) as stream:
            while stream.read(1 << 20):
                pass


def _show(name: str, runs: list[Run], ranks: int) -> tuple[float, float]:
    wall_s = statistics.median(run.wall_s for run in runs)
    cpu_s = statistics.median(run.cpu_s for run in runs)
    each = " ".join(f"{run.wall_s:.2f}" for run in runs)
    print(
        f"  {name:<8}{wall_s:8.3f} s wall {cpu_s:8.3f} s cpu  {wall_s / ranks * 1e6:7.1f} us/rank "
        f"wall {cpu_s / ranks * 1e6:7.1f} cpu  {max(run.rss_mb for run in runs):6.1f} MB peak  "
        f"{runs[-1].lines} lines  (walls {each})",
        flush=True,
    )
    return wall_s, cpu_s


def measure(
    ranks: int, rounds: int, where: Path | None, viewer: Path | None, *, diverse: bool
) -> None:
    """Write the files of one world, time the merge of them, and print the medians."""
    from benchmarks.stacks.diverse_files import write_diverse_files
    from benchmarks.stacks.merge_files import write_files

    with tempfile.TemporaryDirectory(dir=where, prefix="relkit-merge-") as scratch:
        folder, output = Path(scratch, "dumps"), Path(scratch, "out")
        folder.mkdir()
        output.mkdir()
        size = (write_diverse_files if diverse else write_files)(folder, ranks)
        _warm(folder)
        print(
            f"{ranks} ranks, {size / ranks / 1024:.0f} KiB each, {size / 1e9:.2f} GB in all",
            flush=True,
        )
        ours: list[Run] = []
        theirs: list[Run] = []
        for _ in range(rounds):
            ours.append(_run("relkit", folder, output, None))
            if viewer:
                theirs.append(_run("viewer", folder, output, viewer))
        wall_s, cpu_s = _show("relkit", ours, ranks)
        if viewer:
            their_wall_s, their_cpu_s = _show("viewer", theirs, ranks)
            print(
                f"  relkit is {their_wall_s / wall_s:.1f} times faster "
                f"({their_cpu_s / cpu_s:.1f} times in CPU time)",
                flush=True,
            )


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ranks", type=int, action="append", help="world size (default 4096)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--diverse", action="store_true", help="every rank is somewhere else")
    parser.add_argument("--folder", type=Path, help="where to write the files (default: temporary)")
    parser.add_argument("--viewer", type=Path, help="folder of the original viewer, to compare")
    parser.add_argument("--child", nargs=3, metavar=("WHO", "DUMPS", "OUT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        who, folder, output = options.child
        _child(who, Path(folder), Path(output), options.viewer if who == "viewer" else None)
        return
    sys.path.insert(0, str(CHECKOUT))
    print("timed: warm files -> folded texts on disk, medians; no interpreter start, no SVG")
    for ranks in options.ranks or [4096]:
        measure(ranks, options.rounds, options.folder, options.viewer, diverse=options.diverse)


if __name__ == "__main__":
    main()
