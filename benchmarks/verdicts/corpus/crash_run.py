"""Runs a job that fails: under torchrun's agent, or its ranks' lines are marked as by launchers."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from torch._C._distributed_c10d import TCPStore
from torch.distributed import run as torchrun
from torch.distributed.elastic.multiprocessing.subprocess_handler import SubprocessHandler

from benchmarks.verdicts.corpus.board import TooLong
from benchmarks.verdicts.corpus.forks import Forked, exit_code_of, show
from benchmarks.verdicts.corpus.hang_run import LIMIT_S, rank_environment
from benchmarks.verdicts.corpus.incident import Crash, Incident
from benchmarks.verdicts.corpus.launchers import FORMS, Written, keep

_JOB = Path(__file__).with_name("crash_job.py")
# What torchrun does with its workers' output.
_BY_TORCHRUN: Mapping[str, tuple[str, ...]] = {
    "torchrun": (),
    "torchrun-tee": ("--tee", "3"),
    "torchrun-files": ("--redirects", "3"),
}
CRASH_FORMS = (*_BY_TORCHRUN, *FORMS)


def run_crash(incident: Incident, folder: Path) -> None:
    """Make the incident.

    Args:
        incident: whose recipe is a Crash; folder: for what it leaves.

    Raises:
        TooLong: its ranks did not end in time.
    """
    crash = incident.recipe
    assert isinstance(crash, Crash)
    ranks = ",".join(map(str, crash.ranks))
    command = [str(_JOB), f"--fault={crash.fault}", f"--ranks={ranks}", f"--step={crash.step}"]
    if crash.form in _BY_TORCHRUN:
        _under_torchrun(command, crash, incident.ranks, folder)
    else:
        keep(_lines(command, incident.ranks), crash.form, folder)


def _under_torchrun(command: Sequence[str], crash: Crash, ranks: int, folder: Path) -> None:
    """Be torchrun in this process, with forks for workers."""
    SubprocessHandler._popen = _forked  # type: ignore[method-assign, assignment]
    options = _BY_TORCHRUN[crash.form]
    if options:
        options += ("--log-dir", str(folder / "logs"))
    output = os.open(folder / "torchrun.log", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.argv = [
        "torchrun", "--standalone", f"--nproc-per-node={ranks}", *options, *command,
    ]  # fmt: skip
    try:
        torchrun.main(sys.argv[1:])
    except SystemExit as end:
        exit_code_of(end)
    except BaseException:  # noqa: BLE001 (what torchrun shows)
        show()
    sys.stdout.flush()
    sys.stderr.flush()


def _forked(handler: Any, args: tuple[str, ...], env: dict[str, str]) -> Forked:  # noqa: ANN401
    """In place of `Popen` in torch's SubprocessHandler."""
    script = next(place for place, word in enumerate(args) if word.endswith(".py"))
    return Forked(args[script:], env, handler._stdout, handler._stderr)


def _lines(command: Sequence[str], ranks: int) -> list[Written]:
    """Run the ranks, and all that they write."""
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    written: list[Written] = []
    readers: list[threading.Thread] = []
    forked: list[Forked] = []
    for rank in range(ranks):
        ends = {stream: os.pipe() for stream in ("stdout", "stderr")}
        env = rank_environment(rank, ranks, store.port)
        forked.append(Forked(command, env, ends["stdout"][1], ends["stderr"][1]))
        for stream, (reading, writing) in ends.items():
            os.close(writing)
            source = os.fdopen(reading, errors="replace")
            marks = rank, forked[-1].pid, stream
            readers.append(threading.Thread(target=_read, args=(source, marks, written)))
    for reader in readers:
        reader.start()
    _wait(forked)
    for reader in readers:
        reader.join(LIMIT_S)
    return written


def _read(source: IO[str], marks: tuple[int, int, str], written: list[Written]) -> None:
    with source:
        written.extend(Written(time.time(), *marks, line.rstrip("\n")) for line in source)


def _wait(forked: Sequence[Forked]) -> None:
    end_s = time.monotonic() + LIMIT_S
    while any(rank.poll() is None for rank in forked):
        if time.monotonic() > end_s:
            for rank in forked:
                rank.kill()
            raise TooLong("ranks do not end")
        time.sleep(0.02)
