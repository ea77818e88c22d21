"""A folder that looks like one of Megatron's checkpoints, whose content stays in memory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from relkit.checkpoint import iteration_folder
from relkit.errors import UsageProblem


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
