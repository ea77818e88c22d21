"""Hosts on one machine, one of which is cut off the network while a job runs on it.

Each host is a network namespace with one wire to a bridge, which is in a namespace of its own. The
job is benchmarks/jobs/restart_job.py on two hosts, and a third waits as a spare (under torchrun, as
an agent that the job has no place for); used by benchmarks/launches/restart.py. Needs root.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from relkit.output import table

JOB = Path(__file__).resolve().parents[1] / "jobs" / "restart_job.py"
NAMES = ("h1", "h2", "h3")
CUT, SPARE = "h2", "h3"
_TOOL_S, _LIMIT_S, _POLL_S, _TRAINS_S = 10.0, 240.0, 0.02, 5.0
# How long torchrun is given to go on after the cut.
TORCHRUN_S = 300.0
# The last one is for torchrun's sake, see restart.py.
_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "GLOO_SOCKET_IFNAME": "eth0",
    "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
}
_RELKIT = ("relkit", "launch", "--spares", "1")
_TORCHRUN = ("torch.distributed.run",)
_SWITCH = f"rkcut{os.getpid()}-sw"
# What the first host's launcher accounts for once it sees that the spare waits to step in.
_PHASES = ("stop", "rendezvous", "start", "load", "first step")


@dataclass(frozen=True, slots=True)
class CutRun:
    """One job, one of whose hosts was cut off.

    Args:
        back_s: from the cut to the next committed step; phases_s: what that went into, s.
        steps_lost: committed steps done again.
    """

    back_s: float
    phases_s: Mapping[str, float]
    steps_lost: int


def measure(ranks: int) -> CutRun:
    """Run a job on two hosts, cut the second one off, and see when the job commits again.

    Args:
        ranks: on each host.
    """
    with _job(ranks, _RELKIT) as (folder, first, spare):
        _wait(lambda: "is a spare" in _log(folder, SPARE), spare, folder)
        cut_s = _cut(first, folder)
        _wait(lambda: len(_commits(folder, 1)) > 0, first, folder)
        for launcher in (first, spare):
            _wait(lambda each=launcher: each.poll() == 0, launcher, folder)  # type: ignore[misc]
        step, at_s = _commits(folder, 1)[0]
        newest = max(step for step, _ in _commits(folder, 0))
        row = json.loads((folder / "t-h1/recovery.json").read_text())["recoveries"][0]
        phases_s = {each: row["phases_s"][each] or 0.0 for each in _PHASES}
        seen_s = at_s - cut_s - sum(phases_s.values())
        return CutRun(at_s - cut_s, {"detect": seen_s, **phases_s}, max(0, newest + 1 - step))


def measure_torchrun(ranks: int) -> str:
    """How long torchrun takes from the cut to the next committed step, or what it does instead.

    Args:
        ranks: on each host.
    """
    with _job(ranks, _TORCHRUN) as (folder, first, _):
        cut_s = _cut(first, folder)
        while not _commits(folder, 1):
            took_s = time.monotonic() - cut_s
            if first.poll() is not None:
                why = _log(folder, "h1").rstrip().rpartition("\n")[2]
                return f"ended after {took_s:.0f} s ({why})"
            if took_s > TORCHRUN_S:
                return f"not within {TORCHRUN_S:g} s"
            time.sleep(_POLL_S)
        return f"{_commits(folder, 1)[0][1] - cut_s:.2f} s"


@contextlib.contextmanager
def _job(
    ranks: int, command: Sequence[str]
) -> Iterator[tuple[Path, subprocess.Popen[bytes], subprocess.Popen[bytes]]]:
    """A job on two hosts that makes steps, with a spare: folder, first launcher, the spare's."""
    with tempfile.TemporaryDirectory(prefix="relkit-cut-") as name, _hosts():
        folder = Path(name)
        with contextlib.ExitStack() as until:
            first = until.enter_context(_launcher("h1", folder, ranks, command))
            until.enter_context(_launcher(CUT, folder, ranks, command))
            _wait(lambda: len(_commits(folder, 0)) > 0, first, folder)
            yield folder, first, until.enter_context(_launcher(SPARE, folder, ranks, command))


def _cut(first: subprocess.Popen[bytes], folder: Path) -> float:
    """Let the job train for a while, then cut its second host off; when that was, s."""
    begun_s = time.monotonic()
    _wait(lambda: time.monotonic() - begun_s > _TRAINS_S, first, folder)
    cut_s = time.monotonic()
    _ip("-n", _SWITCH, "link", "set", f"to-{CUT}", "down")
    return cut_s


def show(runs: Sequence[CutRun], under_torchrun: Sequence[str]) -> None:
    """Print the table, and what torchrun took."""
    names = ("cut to next commit", *runs[0].phases_s, "steps lost")
    rows = [
        [f"{run.back_s:.2f} s", *(f"{s:.2f} s" for s in run.phases_s.values()), str(run.steps_lost)]
        for run in runs
    ]
    print("a node is cut off, and a spare takes its place (relkit launch --spares 1), by round:")
    print(table(rows, names))
    print(f"the same under torchrun, with a third agent that waits: {'; '.join(under_torchrun)}")


@contextlib.contextmanager
def _hosts() -> Iterator[None]:
    spaces = (_SWITCH, *(_space(name) for name in NAMES))
    try:
        for space in spaces:
            _ip("netns", "add", space)
            _ip("-n", space, "link", "set", "lo", "up")
        _ip("-n", _SWITCH, "link", "add", "br0", "type", "bridge")
        _ip("-n", _SWITCH, "link", "set", "br0", "up")
        for number, name in enumerate(NAMES, 1):
            ends = ("link", "add", f"to-{name}", "type", "veth", "peer", "name", "eth0")
            _ip("-n", _SWITCH, *ends, "netns", _space(name))
            _ip("-n", _SWITCH, "link", "set", f"to-{name}", "master", "br0", "up")
            _ip("-n", _space(name), "addr", "add", f"{_address(number)}/24", "dev", "eth0")
            _ip("-n", _space(name), "link", "set", "eth0", "up")
        yield
    finally:
        for space in spaces:
            _end_all_in(space)
            subprocess.run(["ip", "netns", "del", space], check=False, timeout=_TOOL_S)


@contextlib.contextmanager
def _launcher(
    name: str, folder: Path, ranks: int, command: Sequence[str]
) -> Iterator[subprocess.Popen[bytes]]:
    number = NAMES.index(name) + 1
    ours = ("--timeline-path", str(folder / f"t-{name}")) if command is _RELKIT else ()
    argv = [
        "ip", "netns", "exec", _space(name), sys.executable, "-m", *command, *ours,
        "--nnodes", "2", "--max-restarts", "3", "--nproc-per-node", str(ranks),
        "--rdzv-backend", "c10d", "--rdzv-id", f"cut-{os.getpid()}", "--rdzv-endpoint",
        f"{_address(1)}:29400", "--rdzv-conf", f"is_host={int(number == 1)}", "--local-addr",
        _address(number), str(JOB), str(folder),
    ]  # fmt: skip
    environ = {**os.environ, **_ENVIRONMENT, "RELKIT_NODE_NAME": name}
    with (folder / f"log-{name}").open("wb") as log:
        process = subprocess.Popen(argv, stdout=log, stderr=log, env=environ)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.wait(_TOOL_S)


def _wait(is_so: Callable[[], bool], job: subprocess.Popen[bytes], folder: Path) -> None:
    until_s = time.monotonic() + _LIMIT_S
    while not is_so():
        if time.monotonic() > until_s or job.poll() not in (None, 0):
            logs = "\n".join(f"--- {name}\n{_log(folder, name)}" for name in NAMES)
            raise SystemExit(f"the job does not go on:\n{logs}")
        time.sleep(_POLL_S)


def _commits(folder: Path, attempt: int) -> list[tuple[int, float]]:
    path = folder / "commits"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    rows = [json.loads(line) for line in lines if line.endswith("\n")]
    return [(step, at_s) for number, step, at_s in rows if number == attempt]


def _log(folder: Path, name: str) -> str:
    path = folder / f"log-{name}"
    return path.read_text(errors="replace") if path.exists() else ""


def _space(name: str) -> str:
    return f"rkcut{os.getpid()}-{name}"


def _address(number: int) -> str:
    return f"10.79.9.{number}"


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, timeout=_TOOL_S)


def _end_all_in(space: str) -> None:
    done = subprocess.run(
        ["ip", "netns", "pids", space], capture_output=True, timeout=_TOOL_S, check=False
    )
    for word in done.stdout.split():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(word), signal.SIGKILL)
