"""Which files of a timeline folder belong together: one job, one world, one file a rank."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from relkit.errors import BadDump, UnwritablePath
from relkit.stacks.dumpfile import FrameMemo, parse_name, read_dump
from relkit.stacks.model import RankDump
from relkit.stacks.stack_index import StackIndex

_MEMO_THREADS = 100_000
_NODE = "node-"
# What a folder of a timeline folder begins with that holds an earlier incident.
PREVIOUS = "previous-"


class Head(NamedTuple):
    """What one file says about itself.

    Args:
        name: base name. rank, world_size, job_id, captured_unix_ns: as in RankDump.
        error: why it cannot be used, "" where it can.
    """

    name: str
    rank: int = -1
    world_size: int = 0
    job_id: str = ""
    captured_unix_ns: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True)
class Scan:
    """One head a file, in the order of the names, and all stacks of the files without error."""

    heads: Sequence[Head]
    index: StackIndex


class Scanner(Protocol):
    """Reads the named dump files of a folder."""

    def __call__(
        self, folder: Path, names: Sequence[str], progress: Callable[[int, int], None] | None
    ) -> Scan:
        """Read them all; a bad file becomes a head with an error, never an exception."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The files that are merged, in the order of their ranks, and the ones left out."""

    job_id: str
    world_size: int
    names: tuple[str, ...]
    refused: tuple[tuple[str, str], ...]


def node_folder(folder: Path, node: str) -> Path:
    """Where a node keeps its files, below a timeline folder that several nodes may share.

    Args:
        folder: the timeline folder; node: what the node is called.
    """
    return folder / f"{_NODE}{re.sub(r'[^A-Za-z0-9_.-]', '_', node)[:100]}"


def node_folders(folder: Path) -> list[Path]:
    """The folders of nodes in a timeline folder, as `node_folder` names them; never a link.

    Raises:
        OSError: the folder cannot be read.
    """
    with os.scandir(folder) as entries:
        names = [e.name for e in entries if e.name.startswith(_NODE) and _is_folder(e)]
    return [folder / name for name in sorted(names)]


def _is_folder(entry: os.DirEntry[str]) -> bool:
    return entry.is_dir(follow_symlinks=False)


def _rank_order(name: str) -> tuple[int, str]:
    try:
        return parse_name(name.rpartition("/")[2])[0], name
    except BadDump:
        return -1, name


def list_dumps(folder: Path) -> list[str]:
    """The names of the dump files, by rank; those of nodes are `node-NODE/NAME`.

    Raises:
        BadDump: the folder is missing, unreadable, or holds no dump.
    """
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries]
        for each in node_folders(folder):
            names += [f"{each.name}/{file.name}" for file in each.iterdir()]
    except OSError as error:
        raise BadDump(
            f"cannot read the folder {folder}: {error.strerror}",
            next_step="Give the timeline folder of the hang (--timeline-path of the launch).",
        ) from error
    names = [name for name in names if name.endswith("stacktrace") and not _is_hidden(name)]
    if not names:
        raise BadDump(
            f"no .stacktrace file in {folder}",
            next_step="Capture first: relkit stacks dump --job ID -o FOLDER.",
        )
    return sorted(names, key=_rank_order)


def _is_hidden(name: str) -> bool:
    return name.rpartition("/")[2].startswith(".")


def output_folder(folder: Path) -> Path:
    """The folder for the results, made (private) where it is missing.

    Raises:
        UnwritablePath: it cannot be made.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise UnwritablePath(f"cannot make {folder}: {error.strerror}") from error
    return folder


def python_scanner(
    folder: Path, names: Sequence[str], progress: Callable[[int, int], None] | None
) -> Scan:
    """The scanner in Python: for hosts without the native one, and to test that one against."""
    index = StackIndex()
    heads = read_each(folder, names, lambda _, dump: index.add(dump), progress)
    return Scan(heads, index)


def read_each(
    folder: Path,
    names: Sequence[str],
    take: Callable[[str, RankDump], None],
    progress: Callable[[int, int], None] | None,
) -> list[Head]:
    """Read dump files one after the other.

    Args:
        folder, names: of the files.
        take: called with the name and the content of each file that can be used.
        progress: called with (files done, files in all).

    Returns:
        What each file says about itself, in the order of the names.
    """
    heads = []
    memo: FrameMemo = {}
    for done, name in enumerate(names, 1):
        if len(memo) > _MEMO_THREADS:
            # Frames that never repeat (raw addresses of the original tool) are not worth keeping.
            memo.clear()
        try:
            dump = read_dump(folder / name, memo=memo)
        except BadDump as error:
            heads.append(Head(name, error=str(error).removeprefix(f"{name}: ")))
        else:
            take(name, dump)
            heads.append(Head(name, dump.rank, dump.world_size, dump.job_id, dump.captured_unix_ns))
        if progress is not None:
            progress(done, len(names))
    return heads


def _newest_job(heads: Iterable[Head]) -> str:
    newest: dict[str, tuple[int, int]] = {}
    for head in heads:
        when, count = newest.get(head.job_id, (0, 0))
        newest[head.job_id] = max(when, head.captured_unix_ns), count + 1
    return max(newest, key=lambda job: (newest[job], job))


def _usual_world(heads: Sequence[Head]) -> int:
    sizes = Counter(head.world_size for head in heads if head.world_size)
    if not sizes:
        return max(head.rank for head in heads) + 1
    return max(sizes, key=lambda size: (sizes[size], size))


def _job_name(job_id: str) -> str:
    return f"job {job_id}" if job_id else "no named job"


def choose(heads: Sequence[Head], job_id: str | None, folder: Path) -> Choice:
    """Decide which files are merged.

    The job is the one asked for, else the one captured last. In it the world size that most
    files name wins, and of two files for one rank the first by name. All others are refused,
    each with its reason: a stale file must not speak for a rank of this job.

    Raises:
        BadDump: nothing is left.
    """
    refused = [(head.name, head.error) for head in heads if head.error]
    usable = [head for head in heads if not head.error]
    if not usable:
        name, reason = refused[0]
        raise BadDump(f"none of the {len(refused)} files in {folder} is usable; {name}: {reason}")
    wanted = _newest_job(usable) if job_id is None else job_id
    same_job = [head for head in usable if head.job_id == wanted]
    if not same_job:
        jobs = ", ".join(sorted({_job_name(head.job_id) for head in usable}))
        raise BadDump(
            f"no file in {folder} is of job {job_id}",
            next_step=f"The files there are of: {jobs}.",
        )
    world_size = _usual_world(same_job)
    taken: dict[int, str] = {}
    for head in usable:
        if head.job_id != wanted:
            reason = f"of {_job_name(head.job_id)}, not of {_job_name(wanted)}"
        elif head.world_size not in (0, world_size):
            reason = f"of a world of {head.world_size} ranks, not of {world_size}"
        elif head.rank >= world_size:
            reason = f"rank {head.rank} is outside the world of {world_size} ranks"
        elif head.rank in taken:
            reason = f"rank {head.rank} has the file {taken[head.rank]} already"
        else:
            taken[head.rank] = head.name
            continue
        refused.append((head.name, reason))
    names = tuple(taken[rank] for rank in sorted(taken))
    return Choice(wanted, world_size, names, tuple(sorted(refused)))
