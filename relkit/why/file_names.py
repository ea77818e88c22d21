"""Names of files -> whose each may be: by its own name, its folder, or its place in a row; pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from relkit.flight_recorder.file_names import attempt_of, named_rank
from relkit.why.model import Speaker

# submitit's log of a task of srun.
_SUBMITIT = re.compile(r"\d{3,10}_(\d{1,7})_log\.(?:out|err)", re.ASCII)
_SYSTEM_LOG = re.compile(
    r"(?:dmesg|journal(?:ctl)?|kern|syslog|messages)[-_.]((?=[\w.-]*[A-Za-z])[\w.-]{1,253}?)"
    r"(?:\.(?:txt|log|out|gz|\d+))*",
    re.ASCII,
)
_NUMBER = re.compile(r"(.*?)(\d{1,7})((?:\.[A-Za-z]{1,10}){0,2})", re.ASCII)


def speaker_of_name(file: Path) -> Speaker:
    """Whose file it is: `rank3.log`, `rank_3/stderr`, torchrun's `attempt_0/3/stderr.log`, and
    that of a host: `dmesg-node7.txt`.
    """
    rank = named_rank(file)
    if rank is not None:
        return Speaker(rank=rank)
    parent, above = file.parent, file.parent.parent
    if re.fullmatch(r"\d{1,5}", parent.name, re.ASCII) and attempt_of(above) is not None:
        return Speaker(local_rank=int(parent.name))
    task = _SUBMITIT.fullmatch(file.name)
    if task is not None:
        return Speaker(task=int(task[1]))
    host = _SYSTEM_LOG.fullmatch(file.name)
    if host is not None and host[1] not in ("log", "txt", "out"):
        return Speaker(host=host[1])
    return Speaker()


def numbered(files: Sequence[Path]) -> dict[Path, int]:
    """Files of one folder whose names differ by a number alone, which counts from 0 on."""
    rows: dict[tuple[Path, str, str], dict[int, Path]] = {}
    for file in files:
        name = _NUMBER.fullmatch(file.name)
        if name is not None:
            rows.setdefault((file.parent, name[1], name[3]), {})[int(name[2])] = file
    return {
        file: number
        for row in rows.values()
        if len(row) > 1 and sorted(row) == list(range(len(row)))
        for number, file in row.items()
    }
