"""Runs real jobs through the command line, and sees to it that nothing of them is left."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from relkit.process import procfs
from tests import ports
from tests.eager import eager
from tests.patience import PATIENCE
from tests.waiting import eventually

EXAMPLE = Path(__file__).parents[2] / "examples" / "train.py"
ENDLESS = ("--steps", "100000")
# Of a launcher and its rank until the first step: 8 s on a quiet machine, more on a busy one. Nodes
# that start together on one machine share its cores.
NODE_CPU_S = 12.0
_PR_SET_CHILD_SUBREAPER = 36


@pytest.fixture(scope="package", autouse=True)
def orphans_come_to_us() -> Iterator[None]:
    """Grandchildren whose parent died become ours, so that the leftover check sees them.

    Only here: other tests wait until processes that are not theirs have gone.
    """
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    yield
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Done:
    """A finished command."""

    code: int
    out: str
    err: str
    duration_s: float


@dataclass(slots=True)
class Started:
    """A command that runs, with its output going into files."""

    process: subprocess.Popen[bytes]
    out: Path
    err: Path
    began: float

    def wait(self, timeout_s: float = 50) -> Done:
        """Its end; on expiry it is ended and the test fails."""
        try:
            code = self.process.wait(timeout_s * PATIENCE)
        except subprocess.TimeoutExpired:
            stacks = _stacks(self.process.pid)
            self.stop()
            raise AssertionError(
                f"runs after {timeout_s * PATIENCE} s:\n{self.text}\n{stacks}"
            ) from None
        duration_s = time.monotonic() - self.began
        return Done(code, _read(self.out), _read(self.err), duration_s)

    @property
    def text(self) -> str:
        """All that it has printed so far."""
        return _read(self.out) + _read(self.err)

    def wait_for(self, text: str, timeout_s: float = 40) -> None:
        """Until it has printed something."""
        end = time.monotonic() + timeout_s * PATIENCE
        while True:
            # Asked first: it may print its last lines, and end, in between.
            has_ended = self.process.poll() is not None
            if text in self.text:
                return
            assert not has_ended, f"ended without {text!r}:\n{self.text}"
            assert time.monotonic() < end, f"no {text!r} in:\n{self.text}"
            time.sleep(0.05)

    def stop(self) -> None:
        """End it: SIGTERM first, so that a launcher takes its workers along."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(40)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


def _stacks(pid: int) -> str:
    """Where a command and what it has started stand, for a failing test."""
    texts = []
    py_spy = str(Path(sys.executable).with_name("py-spy"))
    for each in (pid, *procfs.descendants(pid)):
        # A process that stands still while it is forked has no native stacks that can be read.
        for more in (("--native",), ()):
            argv = [py_spy, "dump", "--pid", str(each), *more]
            try:
                done = subprocess.run(
                    argv, capture_output=True, text=True, errors="replace", timeout=30, check=False
                )
            except (OSError, subprocess.TimeoutExpired) as error:
                texts.append(f"Process {each}: {error}")
                continue
            texts.append(done.stdout or f"Process {each}: {done.stderr[:500]}")
            if done.returncode == 0:
                break
    return "\n".join(texts)


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


Start = Callable[..., Started]


@contextmanager
def starter(folder: Path) -> Iterator[Start]:
    """Start `relkit ...` with its output in a folder; whatever still runs at the end is ended."""
    running: list[Started] = []

    def begin(*line: str | Path, program: Sequence[str] = (), **environ: str) -> Started:
        number = len(running)
        out, err = folder / f"out{number}", folder / f"err{number}"
        argv = [*(program or (sys.executable, "-m", "relkit")), *map(str, line)]
        with out.open("wb") as out_stream, err.open("wb") as err_stream:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=out_stream,
                stderr=err_stream,
                env=eager({**os.environ, "OMP_NUM_THREADS": "1", **environ}),
            )
        running.append(Started(process, out, err, time.monotonic()))
        return running[-1]

    try:
        yield begin
    finally:
        for job in running:
            job.stop()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """For the jobs of one test."""
    with starter(tmp_path) as begin:
        yield begin


@pytest.fixture
def free_port() -> int:
    """A TCP port of the loopback for a store that the test starts."""
    return ports.free_port()


def listens(port: int) -> bool:
    """Whether something listens on a TCP port of the loopback."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def until(condition: Callable[[], bool], *jobs: Started, timeout_s: float = 20.0) -> None:
    """Poll until the condition holds; what the jobs have printed explains a failure."""
    eventually(condition, lambda: "\n".join(job.text for job in jobs), timeout_s, poll_s=0.05)


def report_of(timeline: Path) -> dict[str, Any]:
    """The report.json of a timeline folder."""
    plain = json.loads((timeline / "report.json").read_text(encoding="utf-8"))
    assert isinstance(plain, dict)
    return plain
