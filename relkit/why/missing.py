"""What would make an answer surer, and the command that gets it; pure."""

from __future__ import annotations

import re

from relkit.why.model import Evidence, Missing, Sighting
from relkit.why.rules.causes import CAUSES
from relkit.why.rules.told import Kind

_LOGS = Missing(
    "each rank's own output",
    "torchrun --redirects 3 --log-dir DIR, or srun --output=log-%t.txt; then relkit why DIR",
)
_HANG = Missing(
    "stacks or dumps, if the job hung",
    "relkit stacks dump -o DIR while it hangs; or TORCH_FR_BUFFER_SIZE=2000 "
    "TORCH_NCCL_DUMP_ON_TIMEOUT=1 for the next run",
)
_SCHEDULER = Missing(
    "what the scheduler says of its end",
    "sacct -j JOBID --format=JobID,State,ExitCode,NodeList; kubectl describe pod POD",
)
_KERNEL = Missing("the kernel's log of each host", "dmesg -T > dmesg-$(hostname).txt")
_RECORD = Missing("the line of the program", "@record around main() (torch.distributed.elastic)")
# Slurm's accounting names the user, and so all that was missing.
_SAID_BY_WHOM = re.compile(r"\bCANCELLED by \d")


def world_size_missing(who: str) -> Missing:
    """Nobody says whether the files at hand are those of all ranks.

    Args:
        who: the only one that is silent, in words.
    """
    return Missing(
        f"the number of ranks: if these files are of all of them, {who} ended first",
        "print the world size at the start of the program, or add the logs of the other ranks",
    )


def missing_of(
    sighting: Sighting | None, evidence: Evidence, *, has_rank: bool
) -> tuple[Missing, ...]:
    """What is not among the files and would tell more.

    Args:
        sighting: the line that the answer stands on, None where nothing was seen.
        evidence: all that was read; has_rank: it is known whose the failure was.
    """
    if sighting is None:
        # Who has handed in each rank's log need not get it.
        of_ranks = any(
            number is not None
            for each in evidence.present
            for number in (each.rank, each.local_rank, each.task)
        )
        logs = () if of_ranks else (_LOGS,)
        return (*logs, _HANG, _SCHEDULER, _KERNEL)
    cause = CAUSES[sighting.cause]
    is_missing = bool(cause.missing) and _SAID_BY_WHOM.search(sighting.text) is None
    missing = [Missing(cause.missing, cause.command)] if is_missing else []
    if not has_rank and not cause.whole_job and not cause.missing:
        missing.append(_LOGS)
    if sighting.kind is Kind.LAUNCHER:
        missing.append(_RECORD)
    if not evidence.files:
        missing.append(_LOGS)
    return tuple(missing)
