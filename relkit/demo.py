"""The demo: the example job with a fault in it, and whether the verdict names the right rank."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import relkit
from relkit.errors import MissingExtra, UsageProblem
from relkit.faults import FAULTS
from relkit.process.held_signals import signals_held

NO_FAULT = "none"
FAULT_STEP = 5
# Far more steps than the fault needs; a healthy run does these.
HEALTHY_STEPS = 60
FAULTY_STEPS = 100_000


@dataclass(frozen=True, slots=True)
class Demo:
    """One demo run.

    Args:
        fault: one of FAULTS, or NO_FAULT.
        processes: ranks, at least 2 where a fault is injected.
        rank: where the fault goes; -1 picks one in the middle.
        hang_timeout_s: s.
        timeline: folder for the result.
        limit_s: the run is ended after this time, s.
        kind: variant of the fault, "" for its usual one.
    """

    fault: str
    processes: int
    hang_timeout_s: float
    timeline: Path
    rank: int = -1
    limit_s: float = 600.0
    kind: str = ""

    @property
    def guilty(self) -> int | None:
        """The rank that gets the fault; None for a healthy run."""
        if self.fault == NO_FAULT:
            return None
        return self.processes // 2 if self.rank < 0 else self.rank


@dataclass(frozen=True, slots=True)
class DemoResult:
    """The result of a demo run.

    Args:
        guilty: rank with the fault, None for a healthy run.
        culprits: ranks that the verdict names, most likely first; None where there is no verdict.
        exit_code: of the job; None where it had to be ended at the limit.
        duration_s: of the whole run.
        files: what lies in the timeline folder.
    """

    guilty: int | None
    culprits: tuple[int, ...] | None
    exit_code: int | None
    duration_s: float
    files: tuple[Path, ...] = ()

    @property
    def right(self) -> bool:
        """The verdict names the guilty rank first; for a healthy run: no verdict, exit code 0."""
        if self.guilty is None:
            return self.culprits is None and self.exit_code == 0
        return bool(self.culprits) and self.culprits is not None and self.culprits[0] == self.guilty


def example() -> Path:
    """The example training script, in a checkout or as installed.

    Raises:
        UsageProblem: this installation has none.
    """
    # A link in a checkout: the verdict is to name examples/train.py, as the user knows it.
    path = (Path(relkit.__file__).parent / "_examples" / "train.py").resolve()
    if not path.is_file():
        raise UsageProblem(
            "this installation has no example script",
            next_step="Run the demo from a checkout: make demo.",
        )
    return path


def check(demo: Demo) -> None:
    """Refuse what cannot be run.

    Raises:
        UsageProblem: unknown fault, or too few ranks.
        MissingExtra: there is no PyTorch, so no job can run.
    """
    if find_spec("torch") is None:
        raise MissingExtra("relkit demo needs PyTorch, with which it trains")
    if demo.fault not in (*FAULTS, NO_FAULT):
        known = ", ".join((*FAULTS, NO_FAULT))
        raise UsageProblem(f"there is no fault {demo.fault!r}; choose one of {known}")
    guilty = demo.guilty
    if guilty is not None and demo.processes < 2:
        raise UsageProblem("in a job of one rank no other waits for it: use --nproc 2 or more")
    if guilty is not None and guilty >= demo.processes:
        raise UsageProblem(f"there is no rank {guilty} among {demo.processes}")


def command_line(demo: Demo) -> list[str]:
    """The `relkit launch` that the demo runs; it can be typed just so."""
    line = [sys.executable, "-m", "relkit", "launch", "--nproc-per-node", str(demo.processes)]
    line += ["--hang-timeout", f"{demo.hang_timeout_s:g}", "--on-hang", "abort"]
    line += ["--timeline-path", str(demo.timeline)]
    steps = HEALTHY_STEPS
    if demo.guilty is not None:
        kind = f":kind={demo.kind}" if demo.kind else ""
        line += ["--inject", f"{demo.fault}:rank={demo.guilty}:step={FAULT_STEP}{kind}"]
        steps = FAULTY_STEPS
    return [*line, str(example()), "--steps", str(steps)]


def run(demo: Demo, *, environ: Mapping[str, str], output: int | None = None) -> DemoResult:
    """Run it to its end; the job's output goes where this process's goes.

    Args:
        environ: for the job.
        output: file descriptor for the job's stdout and stderr; None leaves them alone.

    Raises:
        UsageProblem: see check().
    """
    check(demo)
    before, began = _identity(demo.timeline), time.monotonic()
    # torch sets the same where nobody has, and explains that at length.
    environ = {"OMP_NUM_THREADS": "1", **environ}
    exit_code = _run(command_line(demo), environ, output, demo.limit_s)
    duration_s = time.monotonic() - began
    files = tuple(sorted(path for path in demo.timeline.glob("*") if path.is_file()))
    # A report of an earlier run in the same folder is not this run's verdict.
    fresh = _identity(demo.timeline) != before
    culprits = _culprits(demo.timeline) if fresh else None
    return DemoResult(demo.guilty, culprits, exit_code, duration_s, files)


def _run(
    line: Sequence[str], environ: Mapping[str, str], output: int | None, limit_s: float
) -> int | None:
    child = None
    try:
        with signals_held():
            child = subprocess.Popen(list(line), env=dict(environ), stdout=output, stderr=output)
        return child.wait(limit_s)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if child is not None and child.poll() is None:
            # SIGTERM: the launcher ends its workers before it goes.
            child.terminate()
            try:
                child.wait(40)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


def _identity(timeline: Path) -> tuple[int, int] | None:
    """Tells one report.json from the next; None where there is none."""
    try:
        status = (timeline / "report.json").stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def _culprits(timeline: Path) -> tuple[int, ...] | None:
    try:
        plain = json.loads((timeline / "report.json").read_text(encoding="utf-8"))
        return tuple(int(rank) for rank in plain["culprits"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
