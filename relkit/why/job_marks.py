"""Of which job a file is: by its name, its folders, and what it says itself; pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from relkit.flight_recorder.file_names import attempt_of
from relkit.why.clocks import clock_of
from relkit.why.model import JobMarks

_ID = r"[A-Za-z0-9][\w.-]{0,60}"
# `slurm-1234.out`, an array's `slurm-1234_7.out`, `slurm-1234.batch.out`.
_SLURM = re.compile(r"slurm[-_.](\d{1,10}(?:_\d{1,7})?)(?!\d)", re.ASCII | re.IGNORECASE)
# submitit's tasks of a job: `1234_0_log.out`.
_SUBMITIT = re.compile(r"(\d{3,10})_\d{1,7}_log\.(?:out|err)", re.ASCII)
# A folder or a log of one job: `job_1234`, `jobid=7`, `job-a1b2`; short numbers of files count
# something else.
_JOB = re.compile(
    r"(?<![A-Za-z])job(?:[-_.]?id)?[-_.=]?(\d{3,12}(?:_\d{1,7})?)(?![\w])", re.ASCII | re.IGNORECASE
)
_JOB_FOLDER = re.compile(rf"(?:job|jobid|job[-_]id)s?[-_.=]?({_ID})", re.ASCII | re.IGNORECASE)
_RUN_FOLDER = re.compile(rf"(?:run|trial|exp|experiment)s?[-_.=]({_ID})", re.ASCII | re.I)
_NO_JOB = re.compile(r"node|host|rank|gpu|worker|pod|task|log|out|err", re.IGNORECASE)
# PBS and Grid Engine: `train.o1234`, `train.e1234-7`.
_PBS = re.compile(r"\.(?:o|e|po|pe)(\d{2,10})(?:[-.]\d{1,6})?$", re.ASCII)
# `train-48121.out` may be a job's as well as that of a process.
_NUMBERED = re.compile(r"(.*?[-_.]|)(\d{3,10})(\.(?:out|err|log|txt|stdout|stderr))", re.ASCII)
_OF_PROCESS = re.compile(r"spy|stack|trace|dump|pid|core|worker|rank|bt\b", re.ASCII | re.I)
# Each rank may have its own of these.
_WANDB = re.compile(r"run-\d{8}_\d{6}-\w+", re.ASCII)
# torchrun's, one a node: `<run id>_<random>/attempt_0/3/stderr.log`.
_TORCHRUN = re.compile(r"(.{1,80})_[a-z0-9_]{8}", re.ASCII)
_SAID = re.compile(
    r"\bSLURM_JOB_?ID[=: ]{1,3}\"?(\d{1,10})\b|\bStepId=(\d{1,10})\b|"
    r"\*\*\* (?:JOB|STEP) (\d{1,10})[. ]|\bsrun: (?:job|launching StepId=)\s?(\d{1,10})\b|"
    r"\b(?:PBS_JOBID[=: ]|LSB_JOBID[=: ]|Job <)\s?(\d{1,10})\b|"
    r"\brdzv_id[=: ]{1,3}([A-Za-z0-9][\w-]{0,60})|\brun_id\s{0,20}[:=] ([A-Za-z0-9][\w-]{0,60})",
    re.ASCII,
)
_NO_ID = frozenset(("none", "None", "null", "default"))


def job_of_name(file: Path) -> str:
    """The id of the job that a file's name or one of its folders tells, the nearest first."""
    known = _SUBMITIT.fullmatch(file.name)
    if known is not None:
        return known[1]
    below = ""
    for place, whole in enumerate((file.name, *(folder.name for folder in file.parents))):
        name, below = _without_random(whole, below), whole
        if _WANDB.fullmatch(name):
            continue
        known = _SLURM.search(name) or _JOB.search(name) or (None if place else _PBS.search(name))
        if known is not None:
            return known[1]
        folder = _JOB_FOLDER.fullmatch(name) or _RUN_FOLDER.fullmatch(name) if place else None
        if folder is not None and _NO_JOB.match(folder[1]) is None and any_digit(folder[1]):
            return folder[1]
    return ""


def _without_random(name: str, below: str) -> str:
    """The name of a folder without what each node's torchrun adds to it.

    Args:
        name: of the folder; below: of the folder or file in it.
    """
    made = _TORCHRUN.fullmatch(name) if attempt_of(Path(below)) is not None else None
    return name if made is None else made[1]


def marks_of(file: Path, lines: Sequence[str]) -> JobMarks:
    """What a file shows of its job.

    Args:
        file: of which the name counts; lines: of its beginning and its end.
    """
    said: set[str] = set()
    for line in lines:
        if "=" in line or ":" in line or "ob" in line or "***" in line:
            said |= {next(filter(None, match.groups())) for match in _SAID.finditer(line[:2048])}
    clocks = [clock for line in lines[:200] if (clock := clock_of(line)) is not None][:1]
    clocks += [clock for line in reversed(lines[-200:]) if (clock := clock_of(line)) is not None][
        :1
    ]
    first, last = (clocks[0], clocks[-1]) if clocks else (None, None)
    return JobMarks(job_of_name(file), frozenset(said - _NO_ID), first, last)


def any_digit(text: str) -> bool:
    """Whether there is a number in it: `job_logs` is no job's name."""
    return any(map(str.isdigit, text))


def number_of_name(file: Path) -> tuple[str, str] | None:
    """The number of a log that may be a job's, and the rest of the name; None where it is none."""
    made = _NUMBERED.fullmatch(file.name)
    if made is None or _OF_PROCESS.search(file.name) or made[2].startswith("0"):
        return None
    return made[2], f"{made[1]}*{made[3]}"
