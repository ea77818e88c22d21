"""A table of step times, by whatever wrote it -> measured steps."""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import numpy as np

from relkit.errors import BadInputFile
from relkit.straggler.measured_steps import (
    COMMUNICATION,
    COMPUTE,
    INPUT,
    MEASURED_PARTS,
    REST,
    WALL,
    MeasuredSteps,
    RankSteps,
)
from relkit.straggler.model import Floats, Ints
from relkit.straggler.traces.column_names import TIMES, WORK, Column, Columns, columns_of
from relkit.straggler.traces.table_rows import Row, TableFile
from relkit.straggler.traces.trace_file import MAX_RANK

# Rows that are kept of a table, some tens of bytes each.
MAX_ROWS = 20_000_000
_LARGEST_STEP = 1 << 53
# Unix time in ns is less.
_LARGEST_TIME = 1e20
# Unix times since 1973 in ms, us and ns, where no unit is told.
_UNIX = ((1e17, 1e-9), (1e14, 1e-6), (1e11, 1e-3))


class StepTableFile:
    """One table: a row for each rank and step, or for each step with a column for each rank.

    Args:
        path: of the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> MeasuredSteps:
        """All of it.

        Raises:
            BadInputFile: it is no table of step times.
            MissingExtra: it is parquet, and pyarrow is not installed.
        """
        file = TableFile(self._path)
        columns = columns_of(file.head, self._path.name)
        rows = _Rows(columns)
        for row in _long(file, columns):
            rows.add(row)
        if not len(rows):
            raise BadInputFile(f"{self._path}: it has no row with a rank and a time")
        notes = [f"{self._path.name}: {file.cut}"] if file.cut else []
        return rows.measured(self._path.name, notes)


class _Rows:
    """Rows of the long form as columns of numbers.

    Args:
        columns: of the table.
    """

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._of_times = {
            kind: column for kind, column in columns.by_kind.items() if kind in (*TIMES, "host")
        }
        self._rank, self._step = array("q"), array("q")
        self._times = {kind: array("d") for kind in self._of_times}
        self._roles: dict[int, str] = {}
        self._hosts: dict[int, str] = {}
        self._count: dict[int, int] = {}
        self._passed = 0

    def __len__(self) -> int:
        return len(self._rank)

    def add(self, row: Row) -> None:
        """Take one; without a rank it says nothing."""
        by_kind = self._columns.by_kind
        rank = _whole(_cell(row, by_kind["rank"].place), MAX_RANK)
        if rank is None or len(self._rank) >= MAX_ROWS:
            self._passed += 1
            return
        step: int | None = self._count.get(rank, 0)
        if "step" in by_kind:
            step = _whole(_cell(row, by_kind["step"].place), _LARGEST_STEP)
        if step is None:
            self._passed += 1
            return
        self._count[rank] = self._count.get(rank, 0) + 1
        self._rank.append(rank)
        self._step.append(step)
        for kind, column in self._of_times.items():
            self._times[kind].append(_seconds(_cell(row, column.place), column))
        for kind, told in (("role", self._roles), ("host", self._hosts)):
            if kind in by_kind and rank not in told:
                told[rank] = str(_cell(row, by_kind[kind].place))[:200]

    def measured(self, name: str, notes: list[str]) -> MeasuredSteps:
        """What they say of the job."""
        rank, step = np.array(self._rank), np.array(self._step)
        times = {kind: np.array(values) for kind, values in self._times.items()}
        # A column `host` of numbers is the host's time, one of words its name.
        host_s = times.pop("host", None)
        if host_s is not None and np.isfinite(host_s).any():
            times.setdefault("other", host_s)
            self._hosts.clear()
        order = np.lexsort((np.arange(len(step)), step, rank))
        last = np.ones(len(order), dtype=bool)
        last[:-1] = (np.diff(rank[order]) != 0) | (np.diff(step[order]) != 0)
        if not last.all():
            again = int((~last).sum())
            notes.append(f"{again:,} rows repeat a rank and step: the last of each counts")
        kept = order[last]
        rank, step = rank[kept], step[kept]
        parts, known, more = _parts({kind: each[kept] for kind, each in times.items()}, step)
        notes += more + self._said()
        ranks = []
        numbers, first = np.unique(rank, return_index=True)
        for number, mine in zip(numbers, np.split(np.arange(len(rank)), first[1:]), strict=True):
            at = mine[np.isfinite(parts[REST, mine])]
            ranks.append(
                RankSteps(
                    int(number), step[at], parts[:, at],
                    self._roles.get(int(number), "all"), self._hosts.get(int(number), ""),
                )
            )  # fmt: skip
        return MeasuredSteps(
            name=name, ranks=tuple(ranks), world_size=int(rank.max()) + 1,
            how="the columns of a table" if known else "step times", causes_known=known,
            devices=True, notes=tuple(notes), files={name: "a table of step times"},
        )  # fmt: skip

    def _said(self) -> list[str]:
        notes = []
        if self._passed:
            notes.append(f"{self._passed:,} rows without a whole rank and step were passed over")
        used = (self._columns.of_ranks or self._of_times).values()
        if not any(column.unit_is_told for column in used):
            notes.append("no column names a unit: times are taken as seconds")
        if "step" not in self._columns.by_kind:
            notes.append("there is no column of steps: rows are counted")
        if self._columns.unused:
            listed = ", ".join(self._columns.unused[:8])[:200]
            notes.append(f"columns that were not used: {listed}")
        return notes


def _long(file: TableFile, columns: Columns) -> Iterator[Row]:
    """The rows in the long form."""
    if not columns.of_ranks:
        yield from file
        return
    for row in file:
        step = _cell(row, columns.step_place) if columns.step_place >= 0 else None
        for rank, column in columns.of_ranks.items():
            yield rank, step, _seconds(_cell(row, column.place), column)


def _parts(times: dict[str, Floats], step: Ints) -> tuple[Floats, bool, list[str]]:
    """((MEASURED_PARTS, rows), whether the parts of steps are known, what is to be said)."""
    count = len(step)
    wall_s = times.get("seconds")
    if wall_s is None and {"start", "end"} <= times.keys():
        wall_s = _from_unix(times["start"], times["end"])
    worked = [times[kind] for kind in WORK if kind in times]
    work_s = sum(worked[1:], worked[0]) if worked else None
    input_s, other_s, waits_s = (times.get(kind) for kind in ("input", "other", "communication"))
    parts = np.full((MEASURED_PARTS, count), np.nan)
    parts[COMPUTE] = 0.0 if work_s is None else work_s
    parts[INPUT] = 0.0 if input_s is None else input_s
    if waits_s is not None:
        parts[COMMUNICATION] = waits_s
    spent_s = parts[COMPUTE] + parts[INPUT]
    notes = []
    known = not (work_s is None and input_s is None and other_s is None and waits_s is None)
    if wall_s is not None:
        parts[WALL] = wall_s
    if other_s is not None:
        parts[REST] = other_s
    elif waits_s is not None and wall_s is not None:
        parts[REST] = np.maximum(wall_s - waits_s - spent_s, 0.0)
    elif work_s is None and wall_s is not None:
        rest_s = np.maximum(wall_s - spent_s, 0.0)
        # Without the waits, what is left of a step is nobody's own.
        parts[REST] = _usual_of_step(rest_s, step) if known else rest_s
    else:
        parts[REST] = np.where(np.isfinite(spent_s), 0.0, np.nan)
    if known and waits_s is None:
        notes.append("there is no column of communication: what is in no other column is left out")
    if not known:
        notes.append(
            "only the lengths of steps are known: a rank that the others wait for within the step "
            "is not seen in them; traces of a profiler show it"
        )
    unknown = ~np.isfinite(parts[: REST + 1]).all(axis=0) | (parts[: REST + 1] < 0.0).any(axis=0)
    parts[:, unknown] = np.nan
    if not np.isfinite(parts[WALL]).any():
        parts[WALL] = np.nansum(parts[: COMMUNICATION + 1], axis=0)
    return parts, known, notes


def _usual_of_step(values: Floats, step: Ints) -> Floats:
    """Of each row the median over the ranks of its step."""
    number, which = np.unique(step, return_inverse=True)
    order = np.lexsort((values, which))
    known = np.isfinite(values[order])
    order = order[known]
    first = np.searchsorted(which[order], np.arange(len(number)))
    count = np.bincount(which[order], minlength=len(number))
    middle = np.minimum(first + np.maximum(count - 1, 0) // 2, max(0, len(order) - 1))
    medians = np.where(count > 0, values[order][middle] if len(order) else np.nan, np.nan)
    usual: Floats = medians[which]
    return usual


def _from_unix(start: Floats, end: Floats) -> Floats:
    """Lengths, s, of what begins and ends at times of a clock."""
    largest = float(np.nanmax(np.abs(start))) if np.isfinite(start).any() else 0.0
    factor = next((factor for least, factor in _UNIX if largest >= least), 1.0)
    lengths: Floats = (end - start) * factor
    return lengths


def _cell(row: Row, place: int) -> object:
    return row[place] if place < len(row) else None


def _whole(value: object, below: int) -> int | None:
    """A rank or a step; `rank3` and `3.0` are 3."""
    if isinstance(value, str):
        value = value[:100]
        matched = re.fullmatch(r"\s*(?:[A-Za-z_ #-]{0,20})(\d{1,18})(?:\.0*)?\s*", value, re.ASCII)
        value = int(matched[1]) if matched else None
    if isinstance(value, float) and value.is_integer() and abs(value) < below:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value < below else None


def _seconds(value: object, column: Column) -> float:
    """NaN where it is no time."""
    if isinstance(value, str):
        value = _of_text(value)
    if isinstance(value, datetime):
        return value.timestamp() if value.tzinfo else (value - datetime(1970, 1, 1)) / _SECOND
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return math.nan
    return float(value) * column.factor if abs(value) < _LARGEST_TIME else math.nan


_SECOND = datetime(1970, 1, 1, 0, 0, 1) - datetime(1970, 1, 1)


def _of_text(text: str) -> float | datetime | None:
    try:
        return float(text)
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(text.strip())
    except ValueError:
        return None
