"""Steps collected from real gloo jobs: equal on all ranks, and the slow rank is the slow one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.straggler.running import Collected, run_job

pytestmark = [pytest.mark.native, pytest.mark.job, pytest.mark.timeout(150)]

_ROOT = Path(__file__).resolve().parents[2]
DDP = str(Path(__file__).with_name("ddp_job.py"))
STAND_IN = str(_ROOT / "benchmarks" / "jobs" / "stand_in.py")
TRAIN = str(_ROOT / "examples" / "train.py")


def same_steps(job: Collected, ranks: int) -> list[int]:
    """The numbers that all ranks have; their collectives are the same ones."""
    by_rank = [{record.step: record for record in job.of(rank)} for rank in range(ranks)]
    common = sorted(set.intersection(*(set(steps) for steps in by_rank)))
    for number in common:
        first = by_rank[0][number].collectives
        for steps in by_rank[1:]:
            other = steps[number].collectives
            for field in ("communicator", "operation", "seq", "size_bytes"):
                assert sorted(first[field]) == sorted(other[field])
    assert len({record.peers_key for record in job.records}) == 1
    return common


def test_a_loop_of_several_collectives_below_a_shell() -> None:
    job = run_job([STAND_IN, "--steps", "90", "--step-ms", "20"], 3, wrapped=True)
    assert len(same_steps(job, 3)) >= 88
    for record in job.records:
        assert record.parts.local_s <= (record.end_ns - record.begin_ns) / 1e9 + 1e-9
        assert len(record.collectives) == 4
    # It sleeps for its device.
    assert job.usual(0, "off_cpu_s") > 0.5 * job.usual(0, "local_s")


def test_the_example_trainer() -> None:
    job = run_job([TRAIN, "--steps", "30"], 2)
    assert len(same_steps(job, 2)) >= 27
    assert job.usual(0, "compute_s") > 0.0


def test_waits_for_a_loader_and_collections_are_told_without_an_edit() -> None:
    options = ["--steps", "40", "--slow-rank", "1", "--slow-input-ms", "100"]
    job = run_job([DDP, *options, "--collect-every", "2"], 2)
    assert len(same_steps(job, 2)) >= 30
    assert job.usual(1, "input_s") > 4.0 * job.usual(0, "input_s")
    collected = [np.array([record.parts.gc_s for record in job.of(rank)]) for rank in (0, 1)]
    assert np.nansum(collected[1]) > 4.0 * np.nansum(collected[0])
    lengths = [record.parts.local_s for record in job.of(1)]
    assert max(lengths) > np.nanmax(collected[1])


def test_marks_of_the_loop_are_taken_as_they_are() -> None:
    job = run_job([DDP, "--steps", "20", "--marks"], 2)
    assert same_steps(job, 2) == list(range(19))
    assert all(record.exact for record in job.records)
