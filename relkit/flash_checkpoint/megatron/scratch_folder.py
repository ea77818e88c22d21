"""A folder that Megatron takes for the one of its checkpoints; their content stays in memory."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from relkit.checkpoint import iteration_folder
from relkit.errors import UnwritablePath, UsageProblem


@contextmanager
def scratch_folder(
    home: Path | None, lay_out: Callable[[Path], object] = lambda _folder: None
) -> Iterator[Path]:
    """Such a folder, until the end of the block.

    Args:
        home: in shared memory, where the launcher removes what is left; None: there is none.
        lay_out: puts into it what Megatron is to see.

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
                f"no folder for Megatron's checkpoint: {error.strerror}",
                next_step="Free some space in /dev/shm or in the folder of temporary files.",
            ) from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _made(home: Path | None, lay_out: Callable[[Path], object]) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="relkit-megatron-", dir=home))
    try:
        lay_out(folder)
    except OSError:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return folder


def lay_out_checkpoint(folder: Path, step: int, names: Sequence[str]) -> None:
    """Make a folder look like one of Megatron's checkpoints, whose content is in memory.

    Args:
        names: of its files; none for a distributed checkpoint.
    """
    iteration = folder / iteration_folder.iteration_name(step)
    iteration.mkdir()
    for name in names:
        (iteration / name).parent.mkdir(parents=True, exist_ok=True)
        (iteration / name).touch()
    if not names:
        (iteration / "metadata.json").write_text(
            '{"sharded_backend": "torch_dist", "sharded_backend_version": 1,'
            ' "common_backend": "torch", "common_backend_version": 1}'
        )
    (folder / iteration_folder.TRACKER).write_text(str(step))


def require_nothing_written(folder: Path) -> None:
    """Megatron has written no file of a checkpoint itself, which would be missing in memory.

    Raises:
        UsageProblem: it has, in a way that is not known.
    """
    for path in folder.glob("*/**/*"):
        if path.is_file():
            raise UsageProblem(
                f"Megatron has written {path.relative_to(folder)} itself: it cannot be kept in"
                " memory",
                next_step="Import Megatron's own save_checkpoint and load_checkpoint.",
            )
