"""What names of files hint at: a rank, a launcher's attempt, a row of numbered logs; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from relkit.why.model import Speaker

_RANK = re.compile(r"(?<![a-z])rank[-_. =]?(\d{1,7})(?!\d)", re.ASCII | re.IGNORECASE)
_NO_RANK = re.compile(r"(?<![a-z0-9])(?:node|local|group)[-_.]?rank[-_. =]?\d{1,7}", re.I | re.A)
_ATTEMPT = re.compile(r"(?:attempt|restart)[-_]?(\d{1,7})", re.ASCII | re.IGNORECASE)
_NUMBER = re.compile(r"(.*?)(\d{1,7})((?:\.[A-Za-z]{1,10}){0,2})", re.ASCII)


def speaker_of_name(file: Path) -> Speaker:
    """Whose file it is: `rank3.log`, `rank_3/stderr`, torchrun's `attempt_0/3/stderr.log`."""
    for name in (file.name, file.parent.name):
        if ranks := _RANK.findall(_NO_RANK.sub("", name)):
            return Speaker(rank=int(ranks[-1]))
    parent, above = file.parent, file.parent.parent
    if re.fullmatch(r"\d{1,5}", parent.name, re.ASCII) and _ATTEMPT.fullmatch(above.name):
        return Speaker(local_rank=int(parent.name))
    return Speaker()


def earlier_attempts(files: Iterable[Path]) -> frozenset[Path]:
    """The files that torchrun keeps of what was restarted later."""
    of: dict[Path, tuple[Path, int]] = {}
    newest: dict[Path, int] = {}
    for file in files:
        for folder in file.parents:
            if (name := _ATTEMPT.fullmatch(folder.name)) is not None:
                of[file] = (folder.parent, int(name[1]))
                newest[folder.parent] = max(newest.get(folder.parent, 0), int(name[1]))
                break
    return frozenset(file for file, (parent, number) in of.items() if number < newest[parent])


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
