"""Write captured ranks into a folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from relkit.errors import UnwritablePath
from relkit.stacks.dumpfile import write_dump
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
