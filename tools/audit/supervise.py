"""Watches a fuzzing process: one that dies, hangs or grows is a finding too, and is replaced."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tools.audit.state import Shared

# A busy machine may let a process wait; the child itself counts its processor's time (child.py).
HANG_S = 60.0
# The processor's time that an input may take.
INPUT_S = 5.0
MEMORY_BYTES = 2 << 30
_LOOK_S = 0.2
_START_S = 120.0
_MAX_RESTARTS = 5

Progress = Callable[[str], None]


@dataclass(slots=True)
class Outcome:
    """What a fuzzer has done.

    Args:
        inputs: that were tried; time_s: for all of them.
        peak_bytes: resident memory; failures: files of inputs that went wrong.
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
        progress: gets a line now and then; hang_s: what no input may
            take; input_s: of the processor's time.
    """
    folder.mkdir(parents=True, exist_ok=True)
    outcome = Outcome(name)
    end_s: float | None = None
    restarts = 0
    while outcome.inputs < inputs and (end_s is None or time.monotonic() < end_s):
        shared = Shared(folder / "state")
        shared.idle(0)
        before = outcome.inputs
        left_s = seconds if end_s is None else end_s - time.monotonic()
        with (folder / "stderr").open("wb") as errors:
            child = subprocess.Popen(
                [sys.executable, "-m", "tools.audit.child", name, str(folder),
                 str(seed + restarts), str(left_s), str(inputs - before), str(input_s)],
                stdout=errors, stderr=errors, stdin=subprocess.DEVNULL,
            )  # fmt: skip
            began_s = time.monotonic()
            why = _watch(child, shared, outcome, before, seconds, progress, hang_s)
        if end_s is None:
            end_s = time.monotonic() + max(0.0, left_s - (time.monotonic() - began_s))
        outcome.time_s += time.monotonic() - began_s
        count, _, data = shared.read()
        outcome.inputs = before + count
        if why and not count:
            lines = (folder / "stderr").read_text(errors="replace").strip().splitlines()
            outcome.trouble = f"did not start: {lines[-1] if lines else why}"
            break
        if why:
            stem = hashlib.sha256(data).hexdigest()[:12]
            (folder / f"{stem}.input").write_bytes(data)
            (folder / f"{stem}.txt").write_text(f"{why}\n")
        restarts += 1
        if not why or restarts > _MAX_RESTARTS:
            break
    outcome.failures = sorted(folder.glob("*.input"))
    (folder / "state").unlink(missing_ok=True)
    return outcome


def _watch(
    child: subprocess.Popen[bytes],
    shared: Shared,
    outcome: Outcome,
    before: int,
    seconds: float,
    progress: Progress,
    hang_s: float,
) -> str:
    """Until it ends; why it went wrong, "" where it did not."""
    began_s = time.monotonic()
    while child.poll() is None:
        count, input_began_s, _ = shared.read()
        now_s = time.monotonic()
        size = _resident_bytes(child.pid)
        outcome.peak_bytes = max(outcome.peak_bytes, size)
        tried, time_s = f"{before + count:,} inputs", f"{now_s - began_s:.0f} s of {seconds:.0f}"
        progress(f"{outcome.name}: {tried} in {time_s}, {size >> 20} MiB")
        why = ""
        if input_began_s and now_s - input_began_s > hang_s:
            why = f"an input took more than {hang_s:.0f} s"
        elif size > MEMORY_BYTES:
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


