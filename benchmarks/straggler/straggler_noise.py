"""Noise of recorded runs: how long a rank took in a step, and how long of that it waited to run."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.straggler.recorded_steps import infer_steps
from relkit.straggler.model import Floats

HALVES = ("tune", "test", "all")
_FIRST_STEPS = 5


def recorded_noise(path: Path, half: str = "all") -> list[Floats]:
    """Of each rank (steps, 2): its local time and run-queue wait, over its median local time.

    The median is that of the whole record: what wandered for minutes wanders here too.

    Args:
        path: as written by straggler_record.py.
        half: "tune" for the first half of the steps, "test" for the second, or "all".
    """
    found = []
    with np.load(path, allow_pickle=False) as table:
        columns = {name: table[name] for name in table.files}
    for rank in np.unique(columns["rank"]):
        mine = columns["rank"] == rank
        start, end = columns["start_ns"][mine], columns["end_ns"][mine]
        names = ("communicator", "operation", "size_bytes")
        keys = list(zip(*(columns[name][mine].tolist() for name in names), strict=True))
        gaps = np.concatenate([[0.0], (start[1:] - np.maximum.accumulate(end)[:-1]) / 1e9])
        gaps = np.maximum(gaps, 0.0)
        steps = [step for step in infer_steps(keys, gaps) if step.regular][_FIRST_STEPS:]
        own = np.array([gaps[step.first : step.end].sum() for step in steps])
        looks = columns["look_rank"] == rank
        run_queue_wait_s = (
            np.interp(end, columns["look_ns"][looks], columns["starved_ns"][looks]) / 1e9
        )
        waited = np.array(
            [run_queue_wait_s[step.end - 1] - run_queue_wait_s[step.first - 1] for step in steps]
        )
        both = np.stack([own, np.clip(waited, 0.0, 0.95 * own)], axis=1) / np.median(own)
        middle = len(both) // 2
        found.append({"tune": both[:middle], "test": both[middle:], "all": both}[half])
    return found


def scatter(values: Floats) -> float:
    """Sigma of single steps, by the median of the distances from the median, relative to it."""
    middle = float(np.median(values))
    return 1.4826 * float(np.median(np.abs(values - middle))) / middle
