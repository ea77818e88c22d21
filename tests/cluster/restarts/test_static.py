"""Jobs under a static rendezvous (`--master-addr`) whose ranks are killed come back, each time."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.cluster.conftest import Done, Start

JOB = Path(__file__).parents[1] / "jobs" / "static_job.py"
# `make stress` asks for 100: each is several seconds of CPU.
RESTARTS = int(os.environ.get("STATIC_RESTARTS", "2"))
pytestmark = [pytest.mark.job, pytest.mark.timeout(300 + 60 * RESTARTS)]
_PORT = re.compile(r"^attempt (\d+) rank (\d+) port (\d+)$", re.MULTILINE)
# A launcher of one job, so that a long run tells how far it is.
_IN_ONE_JOB = 10


def line(tmp_path: Path, port: int, ranks: int, restarts: int, node: int = 0) -> tuple[object, ...]:
    """A launcher's options, as the guides write them, and the job."""
    return ("launch", "--node-rank", str(node), "--master-addr", "127.0.0.1", "--master-port",
            str(port), "--nproc-per-node", str(ranks), "--max-restarts", str(restarts),
            "--no-hook", "--no-warm-standby", "--timeline-path", tmp_path / f"t{node}",
            JOB, str(restarts))  # fmt: skip


def came_back(done: Done, ranks: set[int], restarts: int, port: int, total: int) -> dict[str, str]:
    """All ranks have come to the end; the port of each attempt, the first of which was named."""
    assert done.code == 0, done.err
    assert set(re.findall(r"^rank (\d+) done: (\d+)$", done.out, re.MULTILINE)) == {
        (str(rank), str(4 * total)) for rank in ranks
    }
    ports = {attempt: own for attempt, _, own in _PORT.findall(done.out)}
    assert set(ports) == {str(attempt) for attempt in range(restarts + 1)}
    assert ports["0"] == str(port)
    assert str(port) not in [own for attempt, own in ports.items() if attempt != "0"]
    return ports


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.long)])
def test_killed_ranks_of_one_node_come_back(
    start: Start, tmp_path: Path, free_port: int, ranks: int
) -> None:
    for restarts in _parts(RESTARTS):
        job = start("launch", "--nnodes", "1", *line(tmp_path, free_port, ranks, restarts)[1:])
        done = job.wait(40 + 20 * restarts)
        came_back(done, set(range(ranks)), restarts, free_port, ranks)
        assert "new store" not in done.err


@pytest.mark.long
@pytest.mark.parametrize("ranks", [1, 2])
def test_killed_ranks_of_two_nodes_come_back(
    start: Start, tmp_path: Path, free_port: int, ranks: int
) -> None:
    for restarts in _parts(max(3, RESTARTS)):
        jobs = [
            start("launch", "--nnodes", "2", *line(tmp_path, free_port, ranks, restarts, node)[1:])
            for node in (1, 0)
        ]
        last, first = (job.wait(60 + 30 * restarts) for job in jobs)
        ports = came_back(first, set(range(ranks)), restarts, free_port, 2 * ranks)
        own = set(range(ranks, 2 * ranks))
        assert came_back(last, own, restarts, free_port, 2 * ranks) == ports
        told = re.findall(
            r"restart (\d+): the workers meet in a new store, on port (\d+)", first.err
        )
        assert dict(told) == {number: own for number, own in ports.items() if number != "0"}


def _parts(restarts: int) -> list[int]:
    whole, rest = divmod(restarts, _IN_ONE_JOB)
    return [_IN_ONE_JOB] * whole + [rest] * bool(rest)
