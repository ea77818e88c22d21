"""What a script does before an import counts under `relkit launch` as it does under torchrun."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.cluster.conftest import Start

pytestmark = [pytest.mark.job, pytest.mark.timeout(150)]

JOB = Path(__file__).parents[1] / "jobs" / "import_order_job.py"


def test_imports_give_the_same_at_the_first_start_and_at_a_restart(
    start: Start, tmp_path: Path
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "networkx.py").write_text("__version__ = 'MINE'\n")
    torchrun = ("env", sys.executable, "-m", "torch.distributed.run")
    options = ("--standalone", "--nproc-per-node", "1", "--max-restarts", "1")
    runs = [
        start(*options, JOB, own, program=torchrun).wait(90),
        start("launch", *options, "--timeline-path", tmp_path / "t", JOB, own).wait(90),
    ]
    lines = [
        [line for line in done.out.splitlines() if "facts" in line] for done in runs
    ]  # fmt: skip
    assert [done.code for done in runs] == [0, 0], runs
    assert lines[0] == lines[1]
    first, again = lines[0]
    assert first == f"first {again}"
    assert again.startswith("facts [false, 2, ")
    assert again.endswith(', "MINE"]')
    assert "warm standby: none is made: import_order_job.py does more than import" in runs[1].err, (
        runs[1].err
    )
