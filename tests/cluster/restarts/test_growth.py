"""An elastic job takes in another node, and goes on from what its ranks had in memory."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.cluster.conftest import Start, Started, until
from tests.patience import PATIENCE

pytestmark = [pytest.mark.job, pytest.mark.timeout(120 * PATIENCE)]

JOB = Path(__file__).parents[1] / "jobs" / "growth_job.py"


def steps(folder: Path) -> list[tuple[int, int]]:
    """(world size, step) of all steps, in their order."""
    path = folder / "steps"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [tuple(json.loads(line)) for line in lines if line.endswith("\n")]


@pytest.mark.long
def test_steps_in_memory_are_not_lost_when_the_job_grows(
    start: Start, tmp_path: Path, free_port: int
) -> None:
    def launch(number: int) -> Started:
        return start(
            "launch", "--nnodes", "1:2", "--nproc-per-node", "1", "--rdzv-backend", "c10d",
            "--rdzv-id", f"growth-{os.getpid()}", "--rdzv-endpoint", f"127.0.0.1:{free_port}",
            "--rdzv-conf", f"is_host={int(number == 0)},last_call_timeout=1", "--local-addr",
            "127.0.0.1", "--max-restarts", "1", "--no-warm-standby", "--timeline-path",
            tmp_path / f"t{number}", JOB, tmp_path, RELKIT_NODE_NAME=f"h{number}",
        )  # fmt: skip

    first = launch(0)
    # Its launcher and its worker import torch at the same time, without a standby.
    until(lambda: len(steps(tmp_path)) > 5, first, timeout_s=40)
    second = launch(1)
    until(lambda: any(world == 2 for world, _ in steps(tmp_path)), first, second, timeout_s=40)
    (tmp_path / "end").touch()
    done = [job.wait(60) for job in (first, second)]
    text = done[0].err + done[1].err
    assert [each.code for each in done] == [0, 0], text
    alone = [step for world, step in steps(tmp_path) if world == 1]
    together = [step for world, step in steps(tmp_path) if world == 2]
    assert alone == list(range(len(alone)))
    # The step under way when the workers were stopped may have been in memory, and not yet told.
    assert together[0] in (len(alone), len(alone) + 1), text
    assert "node h1 joins the job" in first.text
    assert "the job takes in another node" in text
