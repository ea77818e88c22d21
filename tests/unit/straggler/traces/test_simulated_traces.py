"""Simulated CUDA traces: whose kernels are slow is told, however equal the steps are."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from relkit.errors import BadInputFile, UsageProblem
from relkit.findings import Report, Status
from relkit.straggler.present.measured_report import measured_report
from relkit.straggler.score.measured_job import judge
from relkit.straggler.traces.sources import read_steps
from tests.unit.straggler.traces.simulated_traces import (
    Fault,
    data_parallel,
    drawn,
    lengths_ms,
    pipeline_groups,
    write,
)


def told(folder: Path) -> Report:
    measured = read_steps([folder])
    return measured_report(measured, judge(measured))


def named(report: Report) -> list[tuple[int, str]]:
    return [(row["rank"], row["cause"]) for row in report.facts["stragglers"]]


@pytest.mark.parametrize("seed", range(20))
def test_a_culprit_in_backward_that_the_all_reduce_hides_is_named(
    seed: int, tmp_path: Path
) -> None:
    world = 2 + seed % 3
    culprit = drawn(seed, world)
    traces = data_parallel(world, 10, Fault(culprit, 60.0), seed=seed)
    means = [sum(lengths_ms(trace)) / 10 for trace in traces]
    assert max(means) / min(means) < 1.003
    report = told(write(tmp_path, traces))
    assert named(report) == [(culprit, "slow-compute")]
    assert report.exit_code == 1
    (row,) = report.facts["stragglers"]
    assert row["first_step"] == 10
    # Ten steps, 60 ms each, of all ranks.
    assert row["cost_s"] == pytest.approx(0.6, rel=0.05)
    assert row["cost_gpu_hours"] == pytest.approx(row["cost_s"] * world / 3600, rel=0.01)
    assert any("ampere_sgemm_32x32_nt" in reason for reason in row["reasons"])


@pytest.mark.parametrize("seed", range(20))
def test_a_healthy_trace_names_nobody(seed: int, tmp_path: Path) -> None:
    report = told(write(tmp_path, data_parallel(2 + seed % 3, 10, seed=seed)))
    assert named(report) == []
    assert report.facts["suspects"] == []
    assert report.exit_code == 0
    assert report.findings[0].id == "RK-STRAG-005"


@pytest.mark.parametrize(
    ("part", "cause"),
    [("input", "slow-input"), ("host", "slow-host"), ("backward", "slow-compute")],
)
def test_the_cause_and_since_when(part: str, cause: str, tmp_path: Path) -> None:
    traces = data_parallel(4, 24, Fault(2, 80.0, 12, part), first_step=100)
    report = told(write(tmp_path, traces))
    assert named(report) == [(2, cause)]
    assert report.facts["stragglers"][0]["first_step"] == 112
    assert report.facts["stragglers"][0]["cost_s"] == pytest.approx(12 * 0.08, rel=0.1)


def test_stages_of_a_pipeline_are_compared_with_their_own(tmp_path: Path) -> None:
    """The second stage has half as much again to compute on all of its ranks: legal."""
    traces = data_parallel(4, 12, factors=(1.0, 1.0, 1.5, 1.5))
    groups = {rank: pipeline_groups(rank, 2, 4) for rank in range(4)}
    report = told(write(tmp_path / "even", traces, groups))
    assert named(report) == []
    assert report.exit_code == 0
    slow = data_parallel(4, 12, Fault(1, 60.0), factors=(1.0, 1.0, 1.5, 1.5))
    report = told(write(tmp_path / "slow", slow, groups))
    assert named(report) == [(1, "slow-compute")]
    assert "held against rank 0" in report.findings[0].reasons


def test_stages_without_replicas_name_nobody(tmp_path: Path) -> None:
    traces = data_parallel(2, 12, factors=(1.0, 1.5))
    groups = {rank: pipeline_groups(rank, 2, 2) for rank in range(2)}
    report = told(write(tmp_path, traces, groups))
    assert named(report) == []
    assert report.exit_code == 3
    assert "equal work" in report.findings[0].title


def rename_transfers(trace: Any) -> None:  # noqa: ANN401
    for event in trace.events:
        if "nccl" in event["name"]:
            event["name"] = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
            event["args"].pop("Collective name")


def test_who_sends_to_a_neighbour_has_an_unknown_stage(tmp_path: Path) -> None:
    traces = data_parallel(2, 12, factors=(1.0, 1.5))
    for trace in traces:
        rename_transfers(trace)
    report = told(write(tmp_path, traces))
    assert named(report) == []
    assert report.status is Status.UNKNOWN


def test_all_to_all_is_no_pipeline(tmp_path: Path) -> None:
    """NCCL's kernel of both is called SendRecv; older traces have no args that tell them apart."""
    traces = data_parallel(2, 12, Fault(1, 60.0))
    for trace in traces:
        rename_transfers(trace)
        for event in [each for each in trace.events if "SendRecv" in each["name"]]:
            trace.host("cpu_op", "nccl:all_to_all", (event["ts"] - 5_062_154_911_209.5) / 1e3, 0.01)
    assert named(told(write(tmp_path, traces))) == [(1, "slow-compute")]


@pytest.mark.parametrize("left", ["launches", "collectives"])
def test_a_device_without_its_kernels_is_not_judged_by_the_host(left: str, tmp_path: Path) -> None:
    traces = data_parallel(2, 12, Fault(1, 60.0, part="host"))
    for trace in traces:
        trace.events = [event for event in trace.events if event["cat"] != "kernel"]
        if left == "collectives":
            trace.events = [each for each in trace.events if each["cat"] != "cuda_runtime"]
            trace.host("user_annotation", "nccl:all_reduce", 1.0, 0.1)
    with pytest.raises(BadInputFile, match="kernels") as refused:
        told(write(tmp_path, traces))
    assert "ProfilerActivity.CUDA" in refused.value.next_step


def test_a_rank_whose_trace_lacks_steps_is_not_accused(tmp_path: Path) -> None:
    traces = data_parallel(4, 12, Fault(3, 60.0))
    lost = {f"ProfilerStep#{number}" for number in (12, 15, 18)}
    traces[3].events = [event for event in traces[3].events if event["name"] not in lost]
    report = told(write(tmp_path, traces))
    assert named(report) == []
    assert report.facts["suspects"] == [3]
    assert report.exit_code == 0


def test_a_trace_that_is_cut_is_said_and_its_rank_not_accused(tmp_path: Path) -> None:
    folder = write(tmp_path, data_parallel(4, 12, Fault(3, 60.0)))
    path = folder / "rank3.json"
    path.write_bytes(path.read_bytes()[: -path.stat().st_size // 5])
    report = told(folder)
    assert named(report) == []
    (finding,) = [each for each in report.findings if each.id == "RK-STRAG-009"]
    assert any("rank3.json" in reason and "cut" in reason for reason in finding.reasons)


def test_a_packed_trace_that_is_cut_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    folder = write(tmp_path, data_parallel(3, 12, Fault(1, 60.0)))
    for path in sorted(folder.glob("*.json")):
        packed = gzip.compress(path.read_bytes())
        kept = packed[: len(packed) * 3 // 4] if path.name == "rank2.json" else packed
        path.with_suffix(".json.gz").write_bytes(kept)
        path.unlink()
    report = told(folder)
    assert named(report) == [(1, "slow-compute")]
    (finding,) = [each for each in report.findings if each.id == "RK-STRAG-009"]
    assert any("packed" in reason for reason in finding.reasons)


def without(document: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in document.items() if key not in keys}


@pytest.mark.parametrize("name", ["rank{}.json", "trace_{}.json", "{}.json", "run-rank-{}-a.json"])
def test_the_rank_is_in_the_name_where_it_is_not_in_the_trace(name: str, tmp_path: Path) -> None:
    for trace in data_parallel(3, 10, Fault(2, 60.0)):
        document = without(trace.document(), "distributedInfo")
        (tmp_path / name.format(trace.rank)).write_text(json.dumps(document))
    assert named(told(tmp_path)) == [(2, "slow-compute")]


def test_a_rank_that_nothing_tells_is_asked_for(tmp_path: Path) -> None:
    paths = {}
    for trace in data_parallel(3, 10, Fault(2, 60.0)):
        # As tensorboard_trace_handler names them: host, process, time.
        path = tmp_path / f"node7_{4711 + trace.rank}.1790857026{trace.rank}.pt.trace.json"
        path.write_text(json.dumps(without(trace.document(), "distributedInfo")))
        paths[path] = trace.rank
    with pytest.raises(UsageProblem, match="which rank") as refused:
        told(tmp_path)
    assert "--rank" in refused.value.next_step
    measured = read_steps([tmp_path], paths)
    assert named(measured_report(measured, judge(measured))) == [(2, "slow-compute")]


def test_two_runs_in_a_folder_are_not_mixed(tmp_path: Path) -> None:
    for run in ("a", "b"):
        for trace in data_parallel(2, 10):
            (tmp_path / f"{run}-rank{trace.rank}.json").write_text(json.dumps(trace.document()))
    with pytest.raises(UsageProblem, match="both"):
        told(tmp_path)


def test_one_rank_alone_is_compared_with_nobody(tmp_path: Path) -> None:
    report = told(write(tmp_path, data_parallel(3, 10, Fault(1, 60.0))[1:2]))
    assert report.exit_code == 3
    assert "nothing to compare" in report.findings[0].title


def test_few_steps_are_no_verdict(tmp_path: Path) -> None:
    report = told(write(tmp_path, data_parallel(3, 3, Fault(1, 60.0))))
    assert named(report) == []
    assert report.exit_code == 3
    assert "rank 1 took the longest" in report.findings[0].reasons[0]


def test_a_slower_model_of_device_is_no_straggler(tmp_path: Path) -> None:
    for trace in data_parallel(3, 10, factors=(1.0, 1.0, 1.4)):
        document = trace.document()
        if trace.rank == 2:
            document["deviceProperties"][0]["name"] = "NVIDIA A100-SXM4-80GB"
        (tmp_path / f"rank{trace.rank}.json").write_text(json.dumps(document))
    assert named(told(tmp_path)) == []


def test_steps_without_a_profiler_step_are_told_by_what_comes_once_a_step(tmp_path: Path) -> None:
    traces = data_parallel(3, 12, Fault(1, 60.0))
    for trace in traces:
        trace.events = [
            event for event in trace.events if not event["name"].startswith("ProfilerStep")
        ]
    report = told(write(tmp_path, traces))
    assert named(report) == [(1, "slow-compute")]
    assert any("DataLoader" in reason for reason in report.findings[-1].reasons)


def test_a_folder_of_other_json_is_no_trace(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"lr": 1}')
    with pytest.raises(BadInputFile):
        told(tmp_path)
