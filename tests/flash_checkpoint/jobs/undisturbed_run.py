"""Runs a job that trains once more, undisturbed, when it has come to its end, and compares."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tests.cluster.conftest import Done, Start

# DTensors and megatron-core need what `tests.eager` leaves out of torch.
TRUE_TORCH = ("env", "PYTHONPATH=", sys.executable, "-m", "relkit")
STEPS = 6
_LOSS = re.compile(r"^(\S+) \S+ rank (\d+) step (\d+) loss (\S+)$", re.MULTILINE)


def run(
    start: Start,
    tmp_path: Path,
    job: Path,
    *arguments: object,
    steps: int = STEPS,
    begun: int = 0,
    restarts: int = 1,
) -> Done:
    """Two ranks of it under the launcher; each loss must be that of the undisturbed job.

    Args:
        arguments: KIND EVERY_DISK DEEDS.
        steps: of the job; begun: how many of them an earlier run has made.
        restarts: of the launcher, at most.
    """
    kind, *rest = arguments
    done = start(
        "launch", "--nproc-per-node", "2", "--max-restarts", str(restarts),
        "--no-warm-standby", "--timeline-path", tmp_path / "timeline",
        job, kind, tmp_path / "ck", str(steps), *rest, program=TRUE_TORCH,
    ).wait(150)  # fmt: skip
    assert done.code == 0, done.err
    rows = _LOSS.findall(done.out)
    real = {row[1:3]: row[3] for row in rows if row[0] == "undisturbed"}
    assert len(real) == 2 * steps
    assert [row for row in rows if row[3] != real[row[1:3]]] == []
    # Every step was made by the job itself, the last ones by its last attempt.
    made = {row[1:3] for row in rows if row[0] != "undisturbed"}
    assert made == {row for row in real if int(row[1]) > begun}
    return done
