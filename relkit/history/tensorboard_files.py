"""The history as event files of TensorBoard: a folder a run, one curve a number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from relkit.errors import MissingExtra, UnwritablePath
from relkit.history.series import Point, points
from relkit.text.job_id import safe_job_id


def write_event_files(folder: Path, events: Sequence[Mapping[str, Any]]) -> tuple[Path, ...]:
    """Write what `points` has to say; the folders of the runs.

    Args:
        folder: for TensorBoard's --logdir; made where it is missing.
        events: as for `points`.

    Raises:
        MissingExtra: tensorboardX is not installed.
        UnwritablePath: the folder cannot be written.
    """
    try:
        from tensorboardX import SummaryWriter
    except ImportError as error:
        raise MissingExtra(
            f"event files of TensorBoard need tensorboardX: {error}",
            next_step="pip install 'relkit-cluster[tensorboard]'",
        ) from error
    by_run: dict[Path, list[Point]] = {}
    for point in points(events):
        place = folder / safe_job_id(point.job or "no-job") / safe_job_id(point.run or "run")
        by_run.setdefault(place, []).append(point)
    try:
        for place, mine in by_run.items():
            with SummaryWriter(str(place)) as writer:
                for point in mine:
                    writer.add_scalar(point.name, point.value, point.place, point.at_unix_s)
    except OSError as error:
        raise UnwritablePath(
            f"cannot write {folder}: {error.strerror}", next_step="Name another folder."
        ) from error
    return tuple(by_run)
