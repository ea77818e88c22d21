"""What names of files tell of a job: whose a file is, and of which of its attempts; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

# `frank3` is a host.
_RANK_IN_NAME = re.compile(r"(?:(?<![A-Za-z])(?i:rank)|Rank)[-_. =]?(\d{1,7})(?!\d)", re.ASCII)
# The last number, where it stands alone or behind a word for what is in the file: numbers of hosts
# (`trace-node02`, `log-jz-iam02`) are none of ranks.
_LAST_NUMBER = re.compile(
    r"(?:^|(?:^|[^a-z])(?:py-?spy|spy|dump|trace|stack|stacktrace|traces|stacks|bt|backtrace|"
    r"fault|faulthandler|log|out|err|stderr|stdout|r|proc|process|worker|trainer)s?[-_. =]?)"
    r"(\d{1,7})(?:\.[a-z]+)*$",
    re.ASCII | re.IGNORECASE,
)
# Numbers of something else: `node_rank0`, `local_rank3`, `gpu3`, `slurm-1234.out`, a date.
_NO_RANK = re.compile(
    r"(?<![a-z0-9])(node|local|group)[-_.]?rank[-_. =]?\d{1,7}"
    r"|(node|local|host|gpu|cuda|slurm|job|pid|attempt)[-_.=]?\d"
    r"|20\d\d[-_.]?[01]\d[-_.]?[0-3]\d",
    re.ASCII | re.IGNORECASE,
)
# A folder with the logs of one attempt: torchrun's `attempt_0`, and what others call it.
_ATTEMPT = re.compile(r"(?:attempt|restart)[-_]?(\d{1,7})", re.ASCII | re.IGNORECASE)


def named_rank(path: Path) -> int | None:
    """The number behind the word `rank` in the name of a file, or of its folder."""
    for name in (path.name, path.parent.name):
        if named := _RANK_IN_NAME.findall(_NO_RANK.sub("", name)):
            return int(named[-1])
    return None


def rank_of_name(path: Path, pid: int) -> int | None:
    """The rank that a name tells: `rank3.txt`, `pyspy_3.log`, `rank_3/stack.txt`.

    Args:
        path: of the file; pid: of the process, which is in names as often and is no rank.
    """
    named = named_rank(path)
    if named is not None:
        return named
    last = None if _NO_RANK.search(path.name) else _LAST_NUMBER.search(path.name)
    return None if last is None or int(last[1]) == pid else int(last[1])


def attempt_of(folder: Path) -> int | None:
    """The number of the attempt whose logs a folder is for; None for any other folder."""
    name = _ATTEMPT.fullmatch(folder.name)
    return None if name is None else int(name[1])


def earlier_attempts(files: Iterable[Path]) -> Mapping[Path, Path]:
    """The files that launchers keep of what was restarted later, each with its attempt's folder."""
    attempts: dict[Path, tuple[Path, int]] = {}
    newest: dict[Path, int] = {}
    for file in files:
        for folder in file.parents:
            if (number := attempt_of(folder)) is not None:
                attempts[file] = folder, number
                newest[folder.parent] = max(newest.get(folder.parent, 0), number)
                break
    return {
        file: folder
        for file, (folder, number) in attempts.items()
        if number < newest[folder.parent]
    }
