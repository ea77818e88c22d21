"""The job that a script for sbatch is made of, and what of it cannot be."""

from __future__ import annotations

import re
from dataclasses import dataclass

from relkit.errors import UsageProblem

# Slurm looks at time limits once a minute, and sends the signal up to a minute early.
_TICK_S = 60
_TIME = re.compile(
    r"(?:(?P<days>\d+)-(?P<h>\d+)(?::(?P<m>\d+)(?::(?P<s>\d+))?)?"
    r"|(?P<hours>\d+):(?P<minutes>\d+):(?P<seconds>\d+)"
    r"|(?P<only_minutes>\d+)(?::(?P<and_seconds>\d+))?)"
)


@dataclass(frozen=True)
class SlurmJob:
    """A training job as `relkit slurm render` is asked for it.

    Args:
        command: the script, and its arguments.
        nodes: that train.
        spares: nodes that wait to take the place of a lost one.
        workers: on each node.
        gpus: of each node, for sbatch; 0 asks for none.
        time: limit in one of Slurm's forms; "" leaves it to the partition.
        save_before_s: the launchers are told to save this long before the limit, s.
        max_restarts: how often the workers may be started again within one start of the job.
        max_requeues: how often the job may be put back into the queue; 0 for never.
        name: of the job; "" leaves it to sbatch.
        sbatch: further lines for sbatch, as "--partition=gpu".
        launch: further words for relkit launch.
        relkit: how relkit is called on the nodes.
    """

    command: tuple[str, ...]
    nodes: int
    spares: int = 0
    workers: int = 1
    gpus: int = 0
    time: str = ""
    save_before_s: int = 300
    max_restarts: int = 3
    max_requeues: int = 10
    name: str = ""
    sbatch: tuple[str, ...] = ()
    launch: tuple[str, ...] = ()
    relkit: tuple[str, ...] = ("relkit",)


def check(job: SlurmJob) -> None:
    """Refuse what sbatch or the job itself would stumble over hours later.

    Raises:
        UsageProblem: with what to write instead.
    """
    for text in (*job.command, *job.sbatch, *job.launch, *job.relkit, job.name, job.time):
        if not text.isprintable():
            raise UsageProblem(f"{text!r} cannot stand in a script: it has a line break in it")
    for line in job.sbatch:
        _check_line(line)
    limit_s = time_limit_s(job.time) if job.time else None
    if limit_s is not None and limit_s <= job.save_before_s + _TICK_S:
        raise UsageProblem(
            f"--time {job.time} leaves no time to train: the job is told to save "
            f"{job.save_before_s} s before its end, and Slurm may do so {_TICK_S} s earlier",
            next_step="Give it more --time, or a smaller --save-before.",
        )


# What the script says itself, and must say as it does for the signal to arrive.
_OWN = {
    "--signal": "--save-before",
    "--nodes": "--nodes and --spares",
    "-N": "--nodes and --spares",
    "--ntasks": "--workers",
    "-n": "--workers",
    "--ntasks-per-node": "--workers",
    "--time": "--time",
    "-t": "--time",
    "--requeue": "--max-requeues",
    "--no-requeue": "--max-requeues",
    "--no-kill": "--spares",
    "-k": "--spares",
    "--job-name": "--name",
    "-J": "--name",
    "--gpus-per-node": "--gpus",
    "--array": "",
    "-a": "",
}


def _check_line(line: str) -> None:
    option = line.split("=")[0].split()[0] if line.strip() else line
    if not option.startswith("-"):
        raise UsageProblem(
            f"--sbatch {line!r} is no option", next_step='Write it as --sbatch="--partition=gpu".'
        )
    if option in _OWN:
        instead = _OWN[option]
        raise UsageProblem(
            f"--sbatch {line}: the script says {option} itself"
            if instead
            else f"--sbatch {line}: a job array cannot be put back into the queue as one job",
            next_step=f"Use {instead}." if instead else "Make one script for each job.",
        )


def time_limit_s(text: str) -> int | None:
    """A time limit as Slurm reads it, s; None for no limit.

    Raises:
        UsageProblem: it is none of Slurm's forms.
    """
    if text.upper() in ("UNLIMITED", "INFINITE", "0"):
        return None
    match = _TIME.fullmatch(text)
    if match is None:
        raise UsageProblem(
            f"--time {text!r} is no time that Slurm knows",
            next_step="Write minutes, HH:MM:SS, or D-HH:MM:SS.",
        )
    part = {name: int(number or 0) for name, number in match.groupdict().items()}
    return (
        86400 * part["days"]
        + 3600 * (part["h"] + part["hours"])
        + 60 * (part["m"] + part["minutes"] + part["only_minutes"])
        + part["s"] + part["seconds"] + part["and_seconds"]
    )  # fmt: skip
