"""What names of files tell of a job: whose a file is, and of which of its attempts; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
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
_WORDS = r"(?:attempt|restart|retry|requeue|cycle)"
_ATTEMPT = re.compile(rf"{_WORDS}[-_.=]?(\d{{1,7}})", re.ASCII | re.IGNORECASE)
# The same in a file's name: `train_restart1.log`, `slurm-12-restart-2.out`.
_IN_NAME = re.compile(
    rf"(?:^|[-_.]){_WORDS}[-_.=]?(\d{{1,7}})(?=[-_.]|$)", re.ASCII | re.IGNORECASE
)


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


def earlier_attempts(files: Sequence[Path]) -> Mapping[Path, Path]:
    """The files that launchers keep of what was restarted later, each with its attempt's folder.

    That is the file itself where its own name says it.
    """
    attempts: dict[Path, tuple[Path, int]] = {}
    newest: dict[Path, int] = {}
    for file in files:
        for folder in file.parents:
            if (number := attempt_of(folder)) is not None:
                attempts[file] = folder, number
                newest[folder.parent] = max(newest.get(folder.parent, 0), number)
                break
    old = {
        file: folder
        for file, (folder, number) in attempts.items()
        if number < newest[folder.parent]
    }
    return {**_earlier_by_name(files), **old}


def _earlier_by_name(files: Iterable[Path]) -> dict[Path, Path]:
    """Files of which another one of the folder is called the same but for a later attempt."""
    rows: dict[tuple[Path, str], list[tuple[int, Path]]] = {}
    for file in files:
        named = _IN_NAME.search(file.name)
        number = -1 if named is None else int(named[1])
        rest = file.name if named is None else file.name[: named.start()] + file.name[named.end() :]
        rows.setdefault((file.parent, rest), []).append((number, file))
    old: dict[Path, Path] = {}
    newest: dict[Path, int] = {}
    for (folder, _), row in rows.items():
        newest[folder] = max(newest.get(folder, -1), max(row)[0])
    for (folder, _), row in rows.items():
        # One without a number is the first attempt's only beside one that has one.
        last = newest[folder] if any(number >= 0 for number, _ in row) else -1
        old |= {file: file for number, file in row if number < last}
    return old
