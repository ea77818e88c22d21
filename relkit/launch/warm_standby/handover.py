"""What a standby is given when it becomes a worker, and whether it can be."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "worker"
VARIABLE = "RELKIT_STANDBY"
_PATH = "PYTHONPATH"

# What a launcher gives anew at each start, and imports have no use for. A change of any other
# variable may matter to what has been imported; of a rank it does, as packages do read theirs.
_OF_ATTEMPT = frozenset(("MASTER_ADDR", "MASTER_PORT"))
_OF_ATTEMPT_PREFIXES = ("TORCHELASTIC_", "RELKIT_")


@dataclass(frozen=True, slots=True)
class WorkerCommand:
    """How torch starts a worker.

    Args:
        argv: the program and its arguments.
        environment: all of it.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str]


def why_not_for(standby: WorkerCommand, worker: WorkerCommand) -> str:
    """Why a standby that was made for one command cannot run another; "" where it can.

    Args:
        standby: the command of the worker that it was made after; worker: the one to start.
    """
    if standby.argv != worker.argv:
        return "the command of the worker has changed"
    before, after = standby.environment, worker.environment
    changed = sorted(
        name
        for name in {*before, *after}
        if before.get(name) != after.get(name)
        and name not in _OF_ATTEMPT
        and not name.startswith(_OF_ATTEMPT_PREFIXES)
    )
    return f"{changed[0]} has changed" if changed else ""


def standby_environment(
    worker: Mapping[str, str], descriptor: int, launcher_pid: int
) -> dict[str, str] | None:
    """The environment of a standby: a worker's, and what has it wait.

    Args:
        worker: the environment that a worker got.
        descriptor: of the standby's socket; launcher_pid: process that it is a child of.

    Returns:
        None where no path list can name relkit's folder.
    """
    if os.pathsep in str(FOLDER):
        return None
    present = worker.get(_PATH, "")
    path = f"{FOLDER}{os.pathsep}{present}" if present else str(FOLDER)
    return {**worker, _PATH: path, VARIABLE: f"{descriptor}:{launcher_pid}"}


def changes(
    standby: Mapping[str, str], worker: Mapping[str, str]
) -> tuple[dict[str, str], list[str]]:
    """The variables that a standby has to set, and those to take away.

    Args:
        standby: what it was started with; worker: what it shall have.
    """
    to_set = {name: value for name, value in worker.items() if standby.get(name) != value}
    return to_set, [name for name in standby if name not in worker]


def is_python(program: str) -> bool:
    """Whether a program is an interpreter itself, and not a script that starts one.

    Args:
        program: its path, or a name that is sought in PATH.
    """
    folders = [""] if os.sep in program else os.environ.get("PATH", "").split(os.pathsep)
    for folder in folders:
        path = Path(folder, program)
        try:
            with path.open("rb") as stream:
                return path.name.startswith("python") and stream.read(4) == b"\x7fELF"
        except OSError:
            continue
    return False
