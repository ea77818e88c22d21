"""A real launcher whose lines a log collector takes, or a person does not want."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cluster.conftest import EXAMPLE, Start
from tests.patience import PATIENCE

pytestmark = [pytest.mark.job, pytest.mark.timeout(120 * PATIENCE)]
JOB = (
    "--standalone", "--nproc-per-node", "2", "--inject", "crash:rank=1:step=2:kind=exit", EXAMPLE,
    "--steps", "1000",
)  # fmt: skip


@pytest.mark.long
def test_each_line_of_the_launcher_is_a_json_object(start: Start, tmp_path: Path) -> None:
    done = start(
        "--log-format", "json", "launch", "--timeline-path", tmp_path / "t", *JOB,
        RELKIT_NODE_NAME="node7",
    ).wait()  # fmt: skip
    assert done.code == 1, done.err
    # Ranks say what is injected by themselves.
    own = [line for line in done.err.splitlines() if line.startswith('{"time": ')]
    ours = [line for line in done.err.splitlines() if line.startswith("relkit: ")]
    assert [line for line in ours if "injecting" not in line] == []
    lines = [json.loads(line) for line in own]
    (verdict,) = [line for line in lines if line.get("event") == "RK-HANG-002"]
    assert verdict["rank"] == 1
    assert verdict["level"] == "error"
    assert verdict["node"] == "node7"
    (files,) = [line["files"] for line in lines if "files" in line]
    assert files[0] == str(tmp_path / "t" / "report.html")


@pytest.mark.long
def test_a_quiet_launcher_shows_the_verdict(start: Start, tmp_path: Path) -> None:
    done = start("launch", "--timeline-path", tmp_path / "t", *JOB, RELKIT_QUIET="1").wait()
    assert done.code == 1, done.err
    assert "FAIL  RK-HANG-002  rank 1" in done.err
    ours = [line for line in done.err.splitlines() if line.startswith("relkit: ")]
    assert [line for line in ours if "injecting" not in line] == []
    assert (tmp_path / "t" / "report.html").is_file()
