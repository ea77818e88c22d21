"""What `relkit why` costs on a log of a gigabyte: CPU time and memory of the whole command.

    python benchmarks/verdicts/large_log.py [--mib 1024]

The log is one of eight ranks that print a line each step; at its end one rank raises.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

RANKS = 8
TRACEBACK = (
    "[rank3]: Traceback (most recent call last):\n"
    '[rank3]:   File "/w/train.py", line 84, in step\n[rank3]:     y\n[rank3]: KeyError: 1\n'
)


def write_log(path: Path, size_bytes: int) -> None:
    """A training log of at least that size."""
    numbers = random.Random(1)  # noqa: S311
    with path.open("w") as stream:
        step = 0
        while stream.tell() < size_bytes:
            step += 1
            stream.writelines(
                f"[rank{rank}]: 2026-11-28 22:{step % 60:02d}:00,123 INFO step {step} | loss "
                f"{numbers.random():.4f} | lr 3.0e-04 | grad norm: 0.912 | tokens/s 12345 | "
                "elapsed time per iteration (ms): 512.3\n"
                for rank in range(RANKS)
            )
        stream.write(TRACEBACK)


def main() -> None:
    """Write the log, and run the command on it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=1024, help="size of the log, MiB")
    size_mib = parser.parse_args().mib
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job.log"
        write_log(path, size_mib << 20)
        command = [sys.executable, "-m", "relkit", "why", str(path)]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        told = child.stdout.read()
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    print(told.splitlines()[0])
    cpu_s = used.ru_utime + used.ru_stime
    print(f"{size_mib} MiB: {cpu_s:.1f} s of CPU, {used.ru_maxrss >> 10} MiB at most")


if __name__ == "__main__":
    main()
