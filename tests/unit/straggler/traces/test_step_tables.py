"""Tables of step times: long and wide, with or without the parts of a step, whatever is in them."""

from __future__ import annotations

import builtins
import csv
import gzip
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from relkit.errors import BadInputFile, MissingExtra, UsageProblem
from relkit.findings import Report
from relkit.straggler.present.measured_report import measured_report
from relkit.straggler.score.measured_job import judge
from relkit.straggler.traces.column_names import columns_of
from relkit.straggler.traces.sources import are_measured, read_steps

Rows = list[dict[str, float]]


def told(path: Path) -> Report:
    measured = read_steps([path])
    return measured_report(measured, judge(measured))


def named(report: Report) -> list[tuple[int, str]]:
    return [(row["rank"], row["cause"]) for row in report.facts["stragglers"]]


def steps(
    ranks: int = 4,
    count: int = 60,
    slow: int = 2,
    since: int = 20,
    more: float = 0.3,
    seed: int = 1,
) -> Rows:
    """Of a job that is synchronous: all steps end together, and who is quick waits in `comm`."""
    chance = np.random.default_rng(seed)
    rows: Rows = []
    for step in range(count):
        compute = 0.08 * (1.0 + 0.01 * chance.normal(size=ranks))
        if step >= since and slow >= 0:
            compute[slow] *= 1.0 + more
        data = 0.005 * (1.0 + 0.1 * chance.normal(size=ranks))
        seconds = float((compute + data).max() + 0.01)
        rows += [
            {"rank": rank, "step": step, "seconds": seconds, "compute": compute[rank],
             "comm": seconds - compute[rank] - data[rank], "input": data[rank]}
            for rank in range(ranks)
        ]  # fmt: skip
    return rows


def write(path: Path, rows: Rows, head: Mapping[str, str] = {}, delimiter: str = ",") -> Path:
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream, delimiter=delimiter)
        writer.writerow([head.get(name, name) for name in rows[0]])
        writer.writerows(list(row.values()) for row in rows)
    return path


def scaled(rows: Rows, factor: float) -> Rows:
    kept = ("rank", "step")
    return [{k: v if k in kept else v * factor for k, v in row.items()} for row in rows]


def test_the_slow_rank_of_equal_steps_is_told_by_their_parts(tmp_path: Path) -> None:
    report = told(write(tmp_path / "times.csv", steps()))
    assert named(report) == [(2, "slow-compute")]
    (row,) = report.facts["stragglers"]
    assert row["first_step"] == 20
    assert row["cost_s"] == pytest.approx(40 * 0.3 * 0.08, rel=0.1)
    assert row["cost_gpu_hours"] == pytest.approx(row["cost_s"] * 4 / 3600, rel=0.01)
    assert report.facts["ideal"]["lost_s"] == pytest.approx(row["cost_s"], rel=0.2)


@pytest.mark.parametrize(
    ("head", "factor"),
    [
        ({"rank": "global_rank", "step": "iteration", "seconds": "step_time_ms",
          "compute": "compute_ms", "comm": "nccl_ms", "input": "data_ms"}, 1e3),
        ({"rank": "Rank", "step": "Global Step", "seconds": "Step Time (ms)",
          "compute": "Compute (ms)", "comm": "Communication (ms)", "input": "Data (ms)"}, 1e3),
        ({"rank": "worker", "step": "iter", "seconds": "duration_us", "compute": "gpu_time_us",
          "comm": "comm_time_us", "input": "dataload_us"}, 1e6),
        ({"seconds": "step_time[ns]", "compute": "compute[ns]", "comm": "comm[ns]",
          "input": "input[ns]"}, 1e9),
    ],
)  # fmt: skip
def test_columns_are_known_by_common_names_and_units(
    head: dict[str, str], factor: float, tmp_path: Path
) -> None:
    report = told(write(tmp_path / "times.csv", scaled(steps(), factor), head))
    assert named(report) == [(2, "slow-compute")]
    assert report.facts["stragglers"][0]["cost_s"] == pytest.approx(40 * 0.3 * 0.08, rel=0.1)
    assert not any("unit" in reason for each in report.findings for reason in each.reasons)


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_delimiters(delimiter: str, tmp_path: Path) -> None:
    path = write(tmp_path / "times.csv", steps(), delimiter=delimiter)
    if delimiter == ";":
        path.write_text(path.read_text().replace(".", ","))
    assert named(told(path)) == [(2, "slow-compute")]


def test_parquet_and_packed_csv(tmp_path: Path) -> None:
    rows = steps()
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    parquet.write_table(pa.table(columns), tmp_path / "times.parquet")
    assert named(told(tmp_path / "times.parquet")) == [(2, "slow-compute")]
    plain = write(tmp_path / "plain.csv", rows).read_bytes()
    (tmp_path / "times.csv.gz").write_bytes(gzip.compress(plain))
    assert named(told(tmp_path / "times.csv.gz")) == [(2, "slow-compute")]
    (tmp_path / "cut.csv.gz").write_bytes(gzip.compress(plain)[:-900])
    report = told(tmp_path / "cut.csv.gz")
    assert any("cut" in reason for each in report.findings for reason in each.reasons)


def test_parquet_without_pyarrow_has_a_next_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parquet.write_table(
        pa.table({"rank": [0], "step": [0], "seconds": [1.0]}), tmp_path / "a.parquet"
    )
    original: Callable[..., Any] = builtins.__import__

    def without(name: str, *args: Any, **more: Any) -> Any:  # noqa: ANN401
        if name == "pyarrow":
            raise ImportError(name)
        return original(name, *args, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtra, match="pyarrow") as refused:
        told(tmp_path / "a.parquet")
    assert "pip install pyarrow" in refused.value.next_step


def test_equal_step_times_alone_name_nobody_and_say_what_they_hide(tmp_path: Path) -> None:
    rows = [{name: row[name] for name in ("rank", "step", "seconds")} for row in steps()]
    report = told(write(tmp_path / "times.csv", rows))
    assert named(report) == []
    assert report.exit_code == 0
    assert any("profiler" in reason for each in report.findings for reason in each.reasons)


@pytest.mark.parametrize("wide", [False, True])
def test_a_rank_whose_steps_are_longer_is_named_without_a_cause(wide: bool, tmp_path: Path) -> None:
    own = [{**row, "seconds": row["compute"] + row["input"]} for row in steps()]
    if wide:
        rows = [
            {"step": step, **{f"rank{row['rank']}": row["seconds"] for row in own
                              if row["step"] == step}}
            for step in range(60)
        ]  # fmt: skip
    else:
        rows = [{name: row[name] for name in ("rank", "step", "seconds")} for row in own]
    report = told(write(tmp_path / "times.csv", rows))
    assert named(report) == [(2, "unknown")]
    assert report.findings[0].id == "RK-STRAG-011"
    assert report.exit_code == 1


def test_begin_and_end(tmp_path: Path) -> None:
    own = [
        {"rank": row["rank"], "step": row["step"], "start": int(1.7e18 + row["step"] * 1e9),
         "end": int(1.7e18 + (row["step"] + row["compute"]) * 1e9)}
        for row in steps()
    ]  # fmt: skip
    report = told(write(tmp_path / "times.csv", own))
    assert named(report) == [(2, "unknown")]
    assert report.facts["stragglers"][0]["cost_s"] == pytest.approx(40 * 0.3 * 0.08, rel=0.1)


@pytest.mark.parametrize(("column", "cause"), [("input", "slow-input"), ("host", "slow-host")])
def test_causes(column: str, cause: str, tmp_path: Path) -> None:
    rows = steps(slow=-1)
    for row in rows:
        row["host"] = 0.01
        if row["rank"] == 1 and row["step"] >= 30:
            row[column] += 0.03
    assert named(told(write(tmp_path / "times.csv", rows))) == [(1, cause)]


@pytest.mark.parametrize("seed", range(20))
def test_healthy_tables_name_nobody(seed: int, tmp_path: Path) -> None:
    report = told(write(tmp_path / "times.csv", steps(slow=-1, seed=seed)))
    assert named(report) == []
    assert report.exit_code == 0


def test_who_waits_for_others_is_not_slow(tmp_path: Path) -> None:
    """The largest time in communication is the victims'."""
    report = told(write(tmp_path / "times.csv", steps(slow=0, more=1.0)))
    assert named(report) == [(0, "slow-compute")]


def test_stages_are_compared_with_their_own(tmp_path: Path) -> None:
    rows = [{**row, "stage": row["rank"] // 2} for row in steps(slow=-1)]
    for row in rows:
        if row["stage"]:
            row["compute"] *= 1.5
            row["comm"] -= row["compute"] / 3
    report = told(write(tmp_path / "times.csv", rows))
    assert named(report) == []
    assert report.exit_code == 0


def test_a_rank_that_lacks_steps_is_not_accused(tmp_path: Path) -> None:
    rows = [row for row in steps() if row["rank"] != 2 or row["step"] % 4]
    report = told(write(tmp_path / "times.csv", rows))
    assert named(report) == []
    assert report.facts["suspects"] == [2]


def test_the_job_as_a_whole(tmp_path: Path) -> None:
    rows = steps(slow=-1)
    for row in rows:
        if row["step"] >= 35:
            row["comm"] += 0.04
            row["seconds"] += 0.04
    report = told(write(tmp_path / "times.csv", rows))
    assert named(report) == []
    finding = report.findings[0]
    assert finding.id == "RK-STRAG-012"
    assert "the job as a whole" in finding.title
    assert "step 35" in finding.title
    assert "communication" in finding.reasons[0]
    assert report.exit_code == 0


def test_rows_that_say_nothing_are_passed_over(tmp_path: Path) -> None:
    path = write(tmp_path / "times.csv", steps())
    lines = path.read_text().splitlines()
    odd = ["nan,nan,nan,,,", "x,y", "", "# comment", '"unclosed', "1,5,-3,1,1,1", "2,7,inf,1,1,1"]
    path.write_text("\n".join([lines[0], *odd[:4], *lines[1:], *odd[4:]]))
    assert named(told(path)) == [(2, "slow-compute")]


@pytest.mark.parametrize("odd", ["1e300", "9e19", "1e-300", "-1e300"])
def test_a_time_that_no_step_takes_is_passed_over(odd: str, tmp_path: Path) -> None:
    path = write(tmp_path / "times.csv", steps())
    path.write_text(path.read_text() + f"1,61,{odd},{odd},{odd},{odd}\n0,61,0.1,0.08,0.01,0.01\n")
    assert named(told(path)) == [(2, "slow-compute")]


@pytest.mark.parametrize(
    "text", ["", "rank,step\n0,1\n", "a,b\n1,2\n", "rank,step,seconds\n", "hello\nworld\n"]
)
def test_no_table_of_step_times(text: str, tmp_path: Path) -> None:
    path = tmp_path / "times.csv"
    path.write_text(text)
    with pytest.raises(BadInputFile):
        told(path)


def test_one_job_at_a_time(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv"):
        write(tmp_path / name, steps())
    assert are_measured([tmp_path])
    with pytest.raises(UsageProblem, match="several tables"):
        told(tmp_path)


NAMES = st.text(st.characters(codec="utf-8"), max_size=12)


@given(
    st.lists(st.one_of(NAMES, st.sampled_from(["rank", "step", "seconds", "rank3", "7", "x_ms"])))
)
def test_any_head_is_columns_or_refused(head: Sequence[str]) -> None:
    try:
        columns = columns_of(head, "a.csv")
    except BadInputFile:
        return
    places = [column.place for column in (columns.of_ranks or columns.by_kind).values()]
    assert len(set(places)) == len(places)
    assert all(0 <= place < len(head) for place in places)


def test_a_very_long_name_is_no_column() -> None:
    """A pattern that tries each of its brackets with each other would take minutes."""
    with pytest.raises(BadInputFile):
        columns_of(["rank", "t" + "[" * 100_000], "a.csv")
