"""Write captured ranks into a folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from relkit.errors import BadDump, OccupiedDump, UnwritablePath
from relkit.stacks.dumpfile import file_name, read_dump, write_dump
from relkit.stacks.engines.base import Target
from relkit.stacks.model import RankDump


def write_dumps(folder: Path, dumps: Sequence[RankDump]) -> tuple[Path, ...]:
    """One .stacktrace file a rank, in the order of the dumps; makes the folder (mode 0700).

    Raises:
        UnwritablePath: the folder cannot be made, or a file not be written.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise UnwritablePath(f"cannot make {folder}: {error.strerror}") from error
    return tuple(write_dump(folder, dump) for dump in dumps)


def require_free(folder: Path, processes: Sequence[RankDump | Target]) -> None:
    """Refuse to write over what another process has left in a folder.

    Raises:
        OccupiedDump: a file of one of these ranks is there, and it is not of the same process.
    """
    for process in processes:
        path = folder / file_name(process.rank, process.world_size)
        try:
            there = read_dump(path)
        except BadDump:
            if not path.is_symlink() and not path.exists():
                continue
            raise OccupiedDump(f"{path} exists, and is no dump that can be read") from None
        if (there.host, there.pid, there.job_id) != (process.host, process.pid, process.job_id):
            of = f" of job {there.job_id}" if there.job_id else ""
            raise OccupiedDump(
                f"{path} is of process {there.pid} on {there.host or 'another host'}{of}; process "
                f"{process.pid} has the same rank's name"
            )
