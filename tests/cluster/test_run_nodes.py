"""`relkit run` on several nodes that share one timeline folder, and nothing else."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from relkit.cli import run
from tests.cluster.conftest import ENDLESS, EXAMPLE, Done, Start, Started, report_of, until
from tests.patience import PATIENCE

pytestmark = [pytest.mark.job, pytest.mark.timeout(300 * PATIENCE)]


def node(start: Start, number: int, timeline: Path, port: int, fault: str, *more: str) -> Started:
    """As `srun --nodes 2 relkit run -- python train.py` starts it on one node of the two."""
    return start(
        "run", "--hang-timeout", "4", "--timeline-path", timeline, *more,
        "--", sys.executable, EXAMPLE, *ENDLESS,
        RANK=str(number), LOCAL_RANK="0", WORLD_SIZE="2", MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port), RELKIT_INJECT=fault, SLURM_JOB_ID=f"{os.getpid()}{port}",
        SLURM_STEP_ID="0", SLURM_STEP_NUM_NODES="2", SLURM_NODEID=str(number),
    )  # fmt: skip


def both(start: Start, timeline: Path, port: int, fault: str) -> list[Done]:
    jobs = [node(start, n, timeline, port, fault) for n in (0, 1)]
    until(lambda: all((timeline / f"node-{n}" / "report.json").exists() for n in (0, 1)), *jobs)
    until(lambda: all("one page of all nodes" in job.text for job in jobs), *jobs)
    for job in jobs:
        job.process.send_signal(signal.SIGTERM)
    return [job.wait() for job in jobs]


@pytest.mark.long
def test_all_nodes_keep_their_files_and_are_read_together(
    start: Start, tmp_path: Path, free_port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    timeline = tmp_path / "t"
    ends = both(start, timeline, free_port, "hang:rank=1:step=4")
    # A node that sees only its own ranks accuses none of another node for that.
    reports = [report_of(timeline / f"node-{n}") for n in (0, 1)]
    assert [report["culprits"] for report in reports] == [[], [1]], ends[0].err + ends[1].err
    assert reports[0]["job_id"] == reports[1]["job_id"] == f"{os.getpid()}{free_port}.0"
    assert f"relkit report {timeline}" in ends[0].err
    names = {path.name for path in timeline.glob("node-*/*.stacktrace")}
    assert names == {"00000-00002.stacktrace", "00001-00002.stacktrace"}
    # Together they know more than each of them.
    capsys.readouterr()
    assert run(["report", str(timeline), "--json"]) == 1
    plain = json.loads(capsys.readouterr().out)
    assert (plain["culprits"], plain["absent"], plain["world_size"]) == ([1], "", 2)
    assert plain["blamed"][0]["place"].startswith("examples/train.py")
    assert any(wait["waiters"] == "0" and wait["missing"] == "1" for wait in plain["waits"])
    assert run(["stacks", "merge", str(timeline), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["absent"] == ""


@pytest.mark.long
def test_a_node_moves_only_what_is_its_own(start: Start, tmp_path: Path, free_port: int) -> None:
    """The second incident of a node moves the files of its first, and those of no other node."""
    timeline = tmp_path / "t"
    for number in (0, 7):
        folder = timeline / f"node-{number}"
        folder.mkdir(parents=True)
        for name in ("report.json", "00005-00008.stacktrace"):
            (folder / name).write_text(f"{number}", encoding="ascii")
    (timeline / "report.json").write_text("of somebody", encoding="ascii")
    both(start, timeline, free_port, "hang:rank=0:step=4")
    assert (timeline / "report.json").read_text(encoding="ascii") == "of somebody"
    for name in ("report.json", "00005-00008.stacktrace"):
        assert (timeline / "node-7" / name).read_text(encoding="ascii") == "7"
        (moved,) = (timeline / "node-0").glob(f"previous-*/{name}")
        assert moved.read_text(encoding="ascii") == "0"
