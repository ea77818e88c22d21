"""Records the collectives of a real short run, as noise for benchmarks/straggler/straggler_sim.py.

usage: python benchmarks/straggler/straggler_record.py OUT.npz [--ranks 2] [--steps 300]
       [--width 128] [--pinned] [--script FILE]

It starts examples/train.py under torchrun with the hook and reads the recorders while it runs, as
the monitor does. Nothing is slowed on purpose. The file holds one row a finished collective: rank,
communicator (number of its name in `names`), operation (number in `operations`), sequence number,
bytes, start and end in ns after the first one (CLOCK_MONOTONIC, one host). Beside these one row a
look: rank, time, and for how long the rank's main thread has been runnable without a core so far.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import numpy as np

from relkit.errors import BadDump
from relkit.hook.environment import worker_environment
from relkit.hook.model import OpKind
from relkit.hook.reader import read_state, state_files

Row = tuple[int, str, str, int, int, int, int]
Wait = tuple[int, int, int]
LIMIT_S = 900.0
LOOK_EVERY_S = 0.25
COLUMNS = ("rank", "communicator", "operation", "seq", "size_bytes", "start_ns", "end_ns")


def main() -> None:
    """Run the job, collect, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--script", type=Path, help="another job than examples/train.py")
    parser.add_argument("--pinned", action="store_true", help="each rank on a core of its own")
    options = parser.parse_args()
    example = Path(__file__).resolve().parents[2] / "examples" / "train.py"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    pinned = [str(Path(__file__).with_name("pinned.py"))] if options.pinned else []
    command += [f"--nproc-per-node={options.ranks}", *pinned, str(options.script or example)]
    command += [f"--steps={options.steps}"]
    if options.script is None:
        command += [f"--width={options.width}"]
    with tempfile.TemporaryDirectory() as folder:
        base = {**os.environ, "OMP_NUM_THREADS": "1"}
        environment = base | worker_environment(Path(folder), base)
        job = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
        rows: set[Row] = set()
        waits: list[Wait] = []
        until = time.monotonic() + LIMIT_S
        try:
            while job.poll() is None and time.monotonic() < until:
                _collect(Path(folder), rows, waits)
                time.sleep(LOOK_EVERY_S)
            _collect(Path(folder), rows, waits)
        finally:
            if job.poll() is None:
                job.terminate()
            job.wait(30)
    _write(options.out, sorted(rows, key=lambda row: (row[0], row[5])), waits)
    print(f"{len(rows)} collectives of {len({row[0] for row in rows})} ranks, rc {job.returncode}")


def _collect(folder: Path, rows: set[Row], waits: list[Wait]) -> None:
    for path in state_files(folder):
        try:
            state = read_state(path)
        except BadDump:
            continue
        with suppress(OSError):
            told = Path(f"/proc/{state.pid}/task/{state.pid}/schedstat").read_text().split()
            waits.append((state.rank, time.clock_gettime_ns(time.CLOCK_MONOTONIC), int(told[1])))
        names = {c.index: c.name for c in state.communicators}
        for op in state.recent:
            if op.kind is OpKind.COLLECTIVE and op.seq >= 0 and state.rank >= 0:
                name = names.get(op.communicator, "")
                times = (op.start_ns, op.end_ns)
                rows.add((state.rank, name, op.name, op.seq, op.size_bytes, *times))


def _write(out: Path, rows: list[Row], waits: list[Wait]) -> None:
    names = sorted({row[1] for row in rows})
    operations = sorted({row[2] for row in rows})
    first_ns = min(row[5] for row in rows)
    table = np.array(
        [
            (r, names.index(c), operations.index(o), seq, size, start - first_ns, end - first_ns)
            for r, c, o, seq, size, start, end in rows
        ],
        dtype=np.int64,
    )
    columns = {name: table[:, place] for place, name in enumerate(COLUMNS)}
    looks = np.array(waits, dtype=np.int64)
    looks[:, 1] -= first_ns
    columns |= {"look_rank": looks[:, 0], "look_ns": looks[:, 1], "starved_ns": looks[:, 2]}
    np.savez_compressed(
        out, **columns, names=np.array(names), operations=np.array(operations), allow_pickle=False
    )


if __name__ == "__main__":
    main()
