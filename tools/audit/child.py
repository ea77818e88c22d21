"""The process that tries inputs; supervise.py starts it.

python -m tools.audit.child NAME FOLDER SEED SECONDS INPUTS INPUT_S
"""

from __future__ import annotations

import ctypes
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path

from relkit.errors import RelkitError
from tools.audit.mutate import changed
from tools.audit.planted import PLANTED
from tools.audit.state import Shared, keep
from tools.audit.target import Run, Target

# Address space, beyond what the process has once the seeds are read.
_MAX_GROWTH_BYTES = 1 << 30
_MAX_KEPT = 20
_PR_SET_PDEATHSIG = 1


def main(argv: list[str]) -> int:
    """Try inputs until the time is over; what goes wrong is written into the folder."""
    # Who watches it may be ended, in whatever way.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    target, folder = _target(argv[0]), Path(argv[1])
    seed, end_s, most = int(argv[2]), time.monotonic() + float(argv[3]), int(argv[4])
    input_s = float(argv[5])
    with tempfile.TemporaryDirectory(prefix="relkit-audit-") as name:
        work, first = Path(name, "work"), Path(name, "seeds")
        work.mkdir()
        first.mkdir()
        seeds = target.seeds(first)
        run = target.open(work)
        for data in seeds:
            # A seed that is refused finds nothing.
            run(target.pack(data))
        _limit_memory()
        shared = Shared(folder / "state")
        chance = random.Random(seed)  # noqa: S311
        kept: set[str] = set()
        count = 0
        while count < most and time.monotonic() < end_s and len(kept) < _MAX_KEPT:
            data = target.pack(changed(chance, seeds, target.shape))
            count += 1
            shared.begin(count, time.monotonic(), data)
            began_s = time.process_time()
            if why := attempt(run, data):
                _keep_new(folder, kept, data, why)
            if (took_s := time.process_time() - began_s) > input_s:
                _keep_new(folder, kept, data, f"took {took_s:.1f} s of CPU time")
        shared.idle(count)
    return 0


def _target(name: str) -> Target:
    if name in PLANTED:
        return PLANTED[name]
    # They import all of relkit, which takes seconds.
    from tools.audit.targets import TARGETS

    return TARGETS[name]


def attempt(run: Run, data: bytes) -> str:
    """Try one input; "" where all is well, else the traceback of what it raised."""
    try:
        run(data)
    except RelkitError:
        return ""
    except Exception:  # noqa: BLE001  (whatever it is, it is a finding)
        return traceback.format_exc()
    return ""


def _limit_memory() -> None:
    """Have an allocation raise MemoryError once the process has grown by the limit."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + _MAX_GROWTH_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _keep_new(folder: Path, kept: set[str], data: bytes, why: str) -> None:
    # The same lines of code are the same defect.
    lines = [line.strip() for line in why.splitlines() if line.strip().startswith("File ")]
    kind = why.rstrip().splitlines()[-1].split(":")[0] if lines else "slow"
    mark = f"{kind}|{'|'.join(lines[-3:])}"
    if mark in kept:
        return
    kept.add(mark)
    keep(folder, data, why)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
