"""Real jobs on gloo, traced by torch.profiler: who is slow in the backward pass is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.straggler.traced_jobs import outcomes, run_jobs
from relkit.straggler.traces.sources import read_steps

RANKS, SLOW = 2, 1


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The traces of a job with a slow rank, and of a healthy one."""
    folder = tmp_path_factory.mktemp("traced")
    run_jobs(folder, RANKS, (SLOW, -1), "pause", steps=10)
    return folder


@pytest.mark.job
def test_a_slow_rank_is_named_from_real_traces_and_a_healthy_job_names_nobody(
    traced: Path,
) -> None:
    slow, healthy = outcomes(traced, RANKS, (SLOW, -1))
    assert slow.named == (SLOW,)
    assert healthy.named == ()


@pytest.mark.job
def test_real_traces_have_what_is_read_from_them(traced: Path) -> None:
    measured = read_steps([traced / "job1"])
    assert measured.world_size == RANKS
    assert measured.how == "operations"
    for each in measured.ranks:
        assert each.numbers.tolist() == list(range(3, 13))
        assert each.host
        # DDP's buckets: who communicates the same has peers.
        assert "allreduce" in each.role
        assert any("WorkBackward" in name for name, _ in each.longest)
    document = json.loads((traced / "job1" / "rank0.json").read_bytes())
    assert document["distributedInfo"]["rank"] == 0
