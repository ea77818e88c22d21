"""The history as numbers over time, for tools that draw curves (pure)."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from relkit.history.csv_cells import cell
from relkit.history.model import What

# W&B reads these two columns as the time and the step of a row.
_TIME, _STEP = "_timestamp", "_step"
COUNTED = tuple(what.value for what in What if what not in (What.START, What.END))
WANDB_HEADER = (_STEP, _TIME, "job", "run", "what", *(f"{what}s" for what in COUNTED),
                "train_step", "seconds", "failed", "finding", "nodes")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Point:
    """One number of one run.

    Args:
        job, run: whose; name: of the number.
        value: the number; place: how many events of the run came before.
        at_unix_s: when.
    """

    job: str
    run: str
    name: str
    value: float
    place: int
    at_unix_s: float


@dataclass(slots=True)
class _Run:
    """What has happened to a run so far: how many events, and how many of each kind."""

    place: int
    counts: dict[str, int]


def _in_order(
    events: Sequence[Mapping[str, Any]],
) -> Iterator[tuple[Mapping[str, Any], _Run]]:
    runs: dict[tuple[str, str], _Run] = {}
    for row in events:
        run = runs.setdefault((row["job"], row["run"]), _Run(-1, dict.fromkeys(COUNTED, 0)))
        run.place += 1
        if row["what"] in run.counts:
            run.counts[row["what"]] += 1
        yield row, run


def points(events: Sequence[Mapping[str, Any]]) -> Iterator[Point]:
    """How often what has happened, the steps that were saved, and how long things took.

    Args:
        events: as in the facts of `relkit history`, the oldest first.
    """
    for row, run in _in_order(events):
        what = row["what"]
        values: dict[str, float] = {}
        if what in run.counts:
            values[f"count/{what}"] = run.counts[what]
        if row["step"] >= 0:
            values[f"step/{what}"] = row["step"]
        if row["seconds"] > 0:
            values[f"seconds/{what}"] = row["seconds"]
        for name, value in values.items():
            yield Point(row["job"], row["run"], name, value, run.place, row["at_unix_s"])


def as_wandb_csv(events: Sequence[Mapping[str, Any]]) -> str:
    """A row an event with all counts so far, for wandb.log() row by row, or as a table.

    Args:
        events: as for points().
    """
    made = io.StringIO()
    writer = csv.writer(made, lineterminator="\n")
    writer.writerow(WANDB_HEADER)
    for row, run in _in_order(events):
        writer.writerow(
            [
                run.place,
                round(row["at_unix_s"], 3),
                cell(row["job"]),
                cell(row["run"]),
                row["what"],
                *run.counts.values(),
                row["step"] if row["step"] >= 0 else "",
                row["seconds"] or "",
                int(row["status"] == "fail"),
                cell(row["finding"]),
                cell(" ".join(row["nodes"])),
            ]
        )
    return made.getvalue()
