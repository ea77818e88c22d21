"""The history as curves: what TensorBoard and W&B read is what had happened."""

from __future__ import annotations

import csv
import io
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from relkit.history.model import Event, What
from relkit.history.series import as_wandb_csv, points
from relkit.history.tensorboard_files import write_event_files

EVENTS = (
    Event(100.0, What.START, "a", "r1", step=0),
    Event(110.0, What.VERDICT, "a", "r1", finding="RK-STRAG-001", status="fail", nodes=("n1",)),
    Event(120.0, What.SAVE, "a", "r1", step=40, seconds=1.5),
    Event(130.0, What.START, "=b/../c", "r2"),
    Event(140.0, What.RESTART, "a", "r1"),
    Event(150.0, What.RESTART, "a", "r1"),
    Event(160.0, What.END, "a", "r1", status="failed"),
)


def rows() -> list[dict[str, Any]]:
    return [{**asdict(event), "what": event.what.value} for event in EVENTS]


def test_points_count_what_has_happened_to_each_run() -> None:
    mine = [(p.name, p.value, p.place, p.at_unix_s) for p in points(rows()) if p.job == "a"]
    assert mine == [
        ("step/start", 0, 0, 100.0),
        ("count/verdict", 1, 1, 110.0),
        ("count/save", 1, 2, 120.0),
        ("step/save", 40, 2, 120.0),
        ("seconds/save", 1.5, 2, 120.0),
        ("count/restart", 1, 3, 140.0),
        ("count/restart", 2, 4, 150.0),
    ]


def test_a_table_for_wandb_has_numbers_that_it_takes_and_no_formulas() -> None:
    table = list(csv.DictReader(io.StringIO(as_wandb_csv(rows()))))
    assert len(table) == len(EVENTS)
    assert [row["_step"] for row in table if row["job"] == "a"] == list("012345")
    last = table[-1]
    assert (last["restarts"], last["saves"], last["verdicts"]) == ("2", "1", "1")
    assert [row["failed"] for row in table].count("1") == 1
    assert table[3]["job"] == "'=b/../c"
    for row in table:
        numbers = {
            k: v for k, v in row.items() if k not in ("job", "run", "what", "finding", "nodes")
        }
        assert all(float(value) >= 0 for value in numbers.values() if value)


def test_tensorboard_reads_the_event_files(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    folders = write_event_files(tmp_path / "curves", rows())
    # No name of a job leads out of the folder.
    assert [str(each.relative_to(tmp_path)) for each in folders] == ["curves/a/r1"]
    read = accumulator.EventAccumulator(str(folders[0])).Reload()
    assert sorted(read.Tags()["scalars"]) == [
        "count/restart", "count/save", "count/verdict", "seconds/save", "step/save", "step/start",
    ]  # fmt: skip
    restarts = [(e.wall_time, e.step, e.value) for e in read.Scalars("count/restart")]
    assert restarts == [(140.0, 3, 1.0), (150.0, 4, 2.0)]
