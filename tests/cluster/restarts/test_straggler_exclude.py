"""`relkit launch --straggler exclude`: the slow node leaves an elastic job, and the rest trains."""

from __future__ import annotations

from pathlib import Path

import pytest

from relkit.errors import EXIT_CONVICTED
from relkit.straggler.model import Subject
from relkit.straggler.transport.history import load
from tests.cluster.conftest import Start, Started

pytestmark = [pytest.mark.job, pytest.mark.timeout(150)]

SCRIPT = Path(__file__).parents[1] / "jobs" / "slow_job.py"


def two_nodes(start: Start, port: int, folder: Path) -> list[Started]:
    """Two launchers on this host; the second one's rank has twice the work."""
    return [
        start(
            "launch", "--nnodes", "1:2", "--rdzv-backend", "c10d", "--rdzv-id", f"out-{port}",
            "--rdzv-endpoint", f"127.0.0.1:{port}", "--local-addr", "127.0.0.1",
            # The last call is long enough for launchers that begin apart on a busy machine.
            "--rdzv-conf", f"is_host={int(number == 0)},last_call_timeout=8",
            "--max-restarts", "1", "--no-warm-standby", "--straggler", "exclude",
            "--timeline-path", folder / f"t{number}", SCRIPT, "100000", "2",
            RELKIT_NODE_NAME=f"h{number}", SLOW_JOB_PRODUCTS=str(10 * number),
        )
        for number in range(2)
    ]  # fmt: skip


@pytest.mark.long
def test_the_slow_node_leaves_and_the_rest_goes_on(
    start: Start, tmp_path: Path, free_port: int
) -> None:
    first, second = (job.wait(120) for job in two_nodes(start, free_port, tmp_path))
    text = first.err + second.err
    assert second.code == EXIT_CONVICTED, text
    assert first.code == 0, text
    assert "is asked to leave: rank" in text
    assert "this node leaves the job" in second.err
    assert "rank 0 of 1 is done" in first.out
    # Only workers may have died of it.
    assert all(line.startswith("[rank") for line in text.splitlines() if "Traceback" in line), text
    # Whichever of the two was node 0 has the evidence.
    (evidence,) = tmp_path.glob("t*/straggler/excluded/history.npz")
    kept = load(evidence)
    accused = [one.verdict for one in kept.verdicts if one.verdict.subject is Subject.RANK]
    assert [kept.hosts[one.rank] for one in accused] == ["h1"]
