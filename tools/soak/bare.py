"""The soak's steps once more, by torchrun alone: what the losses are held against."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

# As long as a run under relkit is allowed to stand still: its default --hang-timeout.
_STILL_S = 300.0
_LOOK_S = 1.0
_END_S = 60.0


class BareRunFailed(Exception):
    """It has ended otherwise than well, or stood still again and again."""


def run_until_done(
    command: Sequence[str],
    environ: Mapping[str, str],
    progress: Path,
    *,
    still_s: float = _STILL_S,
    most: int = 5,
) -> int:
    """Run a program to its end; where it stands still, end it and start it again.

    Without relkit nobody else would. CPython 3.11 forks loader processes while another thread may
    hold a lock that the child then waits for, so that a run of an hour does stand still now and
    then. What it has done up to its last checkpoint counts.

    Args:
        command, environ: of the program, which goes on from its own checkpoint.
        progress: a file that grows while it does anything.
        still_s: how long it may not grow, s.
        most: this often it is started again.

    Returns:
        how often that was.

    Raises:
        BareRunFailed: see there.
    """
    for again in range(most + 1):
        if _run(command, environ, progress, still_s):
            return again
    raise BareRunFailed(f"the bare run stood still {most + 1} times for {still_s:g} s")


def _run(
    command: Sequence[str], environ: Mapping[str, str], progress: Path, still_s: float
) -> bool:
    """One start; whether it came to its end."""
    with (
        tempfile.TemporaryFile() as said,
        subprocess.Popen(command, env=environ, stdout=said, stderr=said) as started,
    ):
        try:
            size, since_s = -1, time.monotonic()
            while started.poll() is None:
                now_s = time.monotonic()
                if (size_now := _size(progress)) != size:
                    size, since_s = size_now, now_s
                elif now_s - since_s > still_s:
                    return False
                time.sleep(_LOOK_S)
        finally:
            _end(started)
        if started.returncode:
            said.seek(0)
            text = said.read().decode(errors="replace")
            raise BareRunFailed(f"the bare run ended with {started.returncode}: {text[-2000:]}")
    return True


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _end(started: subprocess.Popen[bytes]) -> None:
    """End all that it has started, in whatever session; loaders that hang included."""
    try:
        below = psutil.Process(started.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        below = []
    started.kill()
    for process in below:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    started.wait(_END_S)


def train_bare(job: Path, ranks: int, folder: Path, steps: int) -> int:
    """Train by torchrun.

    Args:
        job: its script; folder: it writes its losses and checkpoints there.

    Returns:
        how often it stood still, and was started again.

    Raises:
        BareRunFailed: see there.
    """
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone",
        "--nproc-per-node", str(ranks), str(job), str(folder), str(steps), "0",
    ]  # fmt: skip
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "ENABLE_TTP": "False"}
    return run_until_done(command, environ, folder / "loss-0")
