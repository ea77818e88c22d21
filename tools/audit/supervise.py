"""Watches a fuzzing process: one that dies, hangs or grows is a finding too, and is replaced."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tools.audit.state import Shared, keep
from tools.resident_memory import resident_bytes

# Wall time that an input may take: a busy machine may keep a process waiting.
HANG_S = 60.0
# CPU time that an input may take; the child counts it.
INPUT_S = 5.0
# The child's own limit is what it may grow by (child.py); this is for all that it has.
_MAX_RESIDENT_BYTES = 2 << 30
_LOOK_S = 0.2
_START_S = 120.0
_MAX_SAID_CHARS = 4000
_MAX_RESTARTS = 5

Progress = Callable[[str], None]


@dataclass(slots=True)
class Outcome:
    """What a fuzzer has done.

    Args:
        inputs: that were tried; time_s: for all of them.
        peak_bytes: resident memory; failures: files of inputs that went wrong.
        trouble: why it could not run, "" where it could.
    """

    name: str
    inputs: int = 0
    time_s: float = 0.0
    peak_bytes: int = 0
    failures: list[Path] = field(default_factory=list)
    trouble: str = ""

    @property
    def is_good(self) -> bool:
        """Whether inputs were tried, and none went wrong."""
        return bool(self.inputs) and not self.failures and not self.trouble


def fuzz(
    name: str,
    folder: Path,
    *,
    seed: int,
    seconds: float,
    inputs: int,
    progress: Progress,
    hang_s: float = HANG_S,
    input_s: float = INPUT_S,
) -> Outcome:
    """Run one fuzzer for a time.

    Args:
        name: of the target; folder: for inputs that go wrong, made where it is missing.
        seed: of the changes; seconds: how long; inputs: no more than that.
        progress: gets a line now and then.
        hang_s: wall time, and input_s: CPU time, that no input may take.
    """
    folder.mkdir(parents=True, exist_ok=True)
    outcome = Outcome(name)
    began_s = time.monotonic()
    for restart in range(_MAX_RESTARTS + 1):
        before, left_s = outcome.inputs, began_s + seconds - time.monotonic()
        if before >= inputs or left_s <= 0:
            break
        shared = Shared(folder / "state")
        shared.idle(0)
        with (folder / "stderr").open("wb") as errors:
            child = subprocess.Popen(
                [sys.executable, "-m", "tools.audit.child", name, str(folder),
                 str(seed + restart), str(left_s), str(inputs - before), str(input_s)],
                stdout=errors, stderr=errors, stdin=subprocess.DEVNULL,
            )  # fmt: skip
            why = _watch(child, shared, outcome, progress, hang_s)
        outcome.time_s = time.monotonic() - began_s
        count, _, data = shared.read()
        outcome.inputs = before + count
        if not why:
            break
        said = (folder / "stderr").read_text(errors="replace").strip()
        if not count:
            outcome.trouble = f"did not start: {said.splitlines()[-1] if said else why}"
            break
        keep(folder, data, f"{why}\n{said[-_MAX_SAID_CHARS:]}".rstrip())
    outcome.failures = sorted(folder.glob("*.input"))
    (folder / "state").unlink(missing_ok=True)
    return outcome


def _watch(
    child: subprocess.Popen[bytes],
    shared: Shared,
    outcome: Outcome,
    progress: Progress,
    hang_s: float,
) -> str:
    """Until it ends; why it went wrong, "" where it did not."""
    began_s = time.monotonic()
    while child.poll() is None:
        count, input_began_s, _ = shared.read()
        now_s = time.monotonic()
        size = resident_bytes(child.pid)
        outcome.peak_bytes = max(outcome.peak_bytes, size)
        time_s = outcome.time_s + now_s - began_s
        tried = f"{outcome.inputs + count:,} inputs in {time_s:.0f} s"
        progress(f"{outcome.name}: {tried}, {size >> 20} MiB")
        why = ""
        if input_began_s and now_s - input_began_s > hang_s:
            why = f"an input took more than {hang_s:.0f} s"
        elif size > _MAX_RESIDENT_BYTES:
            why = f"{size >> 20} MiB of memory"
        elif not count and now_s - began_s > _START_S:
            why = f"no input in {_START_S:.0f} s"
        if why:
            child.send_signal(signal.SIGKILL)
            child.wait()
            return why
        try:
            child.wait(_LOOK_S)
        except subprocess.TimeoutExpired:
            continue
    return f"the process ended with {child.returncode}" if child.returncode else ""
