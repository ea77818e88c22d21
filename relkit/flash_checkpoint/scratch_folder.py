"""A folder that a framework takes for the one of its checkpoints; their content stays in memory."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from relkit.errors import UnwritablePath


@contextmanager
def scratch_folder(
    home: Path | None, lay_out: Callable[[Path], object] = lambda _folder: None
) -> Iterator[Path]:
    """Such a folder, until the end of the block.

    Args:
        home: in shared memory, where the launcher removes what is left; None: there is none.
        lay_out: puts into it what the framework is to see.

    Raises:
        UnwritablePath: neither shared memory nor the folder of temporary files has room for it.
    """
    try:
        folder = _made(home, lay_out)
    except OSError:
        try:
            folder = _made(None, lay_out)
        except OSError as error:
            raise UnwritablePath(
                f"no folder for the framework's checkpoint: {error.strerror}",
                next_step="Free some space in /dev/shm or in the folder of temporary files.",
            ) from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _made(home: Path | None, lay_out: Callable[[Path], object]) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="relkit-scratch-", dir=home))
    try:
        lay_out(folder)
    except OSError:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return folder
