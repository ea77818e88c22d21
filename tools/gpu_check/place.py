"""Runs one job under the hook, and brings back what it said and what was recorded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relkit.hook.environment import worker_environment
from relkit.hook.model import HookState
from relkit.hook.reader import read_state, state_files

JOBS = Path(__file__).with_name("jobs")
ROOT = JOBS.parents[2]
_TAIL = 2000


@dataclass(frozen=True, slots=True)
class Ran:
    """A finished job.

    Args:
        code: its exit code, -1 where it was ended at its limit.
        said: the JSON of its last line; {} where it has none.
        states: what each of its processes recorded; () without the hook.
        tail: the end of its output.
    """

    code: int
    said: Mapping[str, Any]
    states: tuple[HookState, ...]
    tail: str


def run_job(
    script: str,
    *arguments: str,
    hook: bool = True,
    ranks: int = 0,
    environment: Mapping[str, str] | None = None,
    limit_s: float = 120.0,
) -> Ran:
    """Run jobs/SCRIPT.

    Args:
        script: file name; arguments: of the job.
        hook: preload the recorder.
        ranks: 0 = a plain process, else so many ranks of torchrun.
        environment: variables to add.
        limit_s: the job is killed after this time.
    """
    command = [sys.executable]
    if ranks:
        command += ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    command += [str(JOBS / script), *arguments]
    # Where the files of a job's recorders are, too.
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        base = {**os.environ, **(environment or {})}
        extra = worker_environment(Path(folder), base) if hook else {}
        code, output = run(command, base | extra, limit_s)
        states = tuple(read_state(path) for path in state_files(Path(folder)))
    return Ran(code, last_json(output), states, output[-_TAIL:])


def run(
    command: Sequence[str], environment: Mapping[str, str], limit_s: float, folder: str = ""
) -> tuple[int, str]:
    """(exit code, output of both kinds) of a command; -1 where it was ended at its limit.

    Args:
        folder: in which it runs; "" = this process's.
    """
    try:
        done = subprocess.run(
            list(command), env=dict(environment), stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, timeout=limit_s, check=False, cwd=folder or None,
        )  # fmt: skip
    except subprocess.TimeoutExpired as late:
        return -1, (late.stdout or b"").decode("utf-8", "replace")
    return done.returncode, done.stdout.decode("utf-8", "replace")


def last_json(output: str) -> dict[str, Any]:
    """The last line of an output that is a JSON object."""
    for line in reversed(output.splitlines()):
        if line.startswith("{"):
            try:
                found = json.loads(line)
            except ValueError:
                continue
            return found if isinstance(found, dict) else {}
    return {}
