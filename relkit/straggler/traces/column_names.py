"""What the columns of a table of step times are called, in common spellings; pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from relkit.errors import BadInputFile

_SPELLINGS = {
    "rank": "rank global_rank rank_id worker worker_id process process_index proc gpu_rank",
    "step": "step steps iteration iter global_step step_id step_number iteration_number batch "
    "batch_idx",
    # The name of a host, or in some tables the time that the host took.
    "host": "hostname node node_name host_name",
    "role": "stage pipeline_stage pp_stage pp_rank role",
    "seconds": "seconds second sec secs step_seconds step_time steptime duration dur elapsed "
    "elapsed_time iter_time iteration_time time time_per_step step_duration wall wall_time total "
    "total_time batch_time",
    "start": "start begin start_time begin_time step_start started t0",
    "end": "end stop end_time stop_time step_end ended t1",
    "compute": "compute computation compute_time kernel kernels kernel_time gpu_time device_time",
    "forward": "forward fwd forward_time fwd_time forward_compute",
    "backward": "backward bwd backward_time bwd_time backward_compute",
    "optimizer": "optimizer optim optimizer_time optimizer_step opt_time",
    "communication": "comm comms communication comm_time communication_time nccl nccl_time "
    "allreduce all_reduce allreduce_time exposed_comm wait wait_time sync sync_time",
    "input": "input input_time data data_time dataload data_load dataloader data_loading "
    "data_loader_time dataloader_time load_time batch_load",
    "other": "overhead other cpu cpu_time host_time python",
}
_NAMES = {name: kind for kind, names in _SPELLINGS.items() for name in (kind, *names.split())}
_UNITS = {
    "": 1.0, "s": 1.0, "sec": 1.0, "secs": 1.0, "seconds": 1.0, "ms": 1e-3, "msec": 1e-3,
    "millis": 1e-3, "milliseconds": 1e-3, "us": 1e-6, "usec": 1e-6, "microseconds": 1e-6,
    "µs": 1e-6, "ns": 1e-9, "nanoseconds": 1e-9, "min": 60.0,
}  # fmt: skip
_WITH_UNIT = re.compile(
    r"(?P<name>.+?)[ _./(\[-]+(?P<unit>" + "|".join(filter(None, _UNITS)) + r")[)\]]?"
)
_MAX_NAME_CHARS = 200
_OF_RANK = re.compile(
    r"(?:(?:global[ _-]?)?rank|gpu|worker|r|proc(?:ess)?)?[ _-]?(?P<rank>\d{1,6})", re.ASCII
)
TIMES = ("seconds", "start", "end", "compute", "forward", "backward", "optimizer",
         "communication", "input", "other")  # fmt: skip
WORK = ("compute", "forward", "backward", "optimizer")


@dataclass(frozen=True, slots=True)
class Column:
    """What a column holds.

    Args:
        kind: a name of _SPELLINGS; place: of the column, from 0.
        factor: its values times this are seconds. unit_is_told: by its name.
    """

    kind: str
    place: int
    factor: float = 1.0
    unit_is_told: bool = False


@dataclass(frozen=True, slots=True)
class Columns:
    """A table's columns.

    Args:
        by_kind: in the long form, one row a rank and a step.
        unused: names of the others.
        of_ranks: rank -> column, in the wide form: one row a step, of which `by_kind` is what the
            long form would be: rank, step, seconds.
        step_place: of the step in the wide form; -1 = it has none.
    """

    by_kind: dict[str, Column]
    unused: tuple[str, ...]
    of_ranks: dict[int, Column] = field(default_factory=dict)
    step_place: int = -1


def columns_of(head: Sequence[str], of_file: str) -> Columns:
    """The columns by their names.

    Args:
        head: names, as they stand in the file; of_file: its name, for errors.

    Raises:
        BadInputFile: the table has no step times, or two columns for the same.
    """
    by_kind: dict[str, Column] = {}
    of_ranks: dict[int, Column] = {}
    unused = []
    for place, whole_name in enumerate(head):
        # No column is called so long, and patterns would take their time for it.
        name = whole_name[:_MAX_NAME_CHARS]
        column = _column(name, place)
        if column is not None:
            if column.kind in by_kind:
                raise BadInputFile(f"{of_file}: two columns are the {column.kind}: {head}")
            by_kind[column.kind] = column
        elif (rank := _rank_of(name)) is not None and rank[0] not in of_ranks:
            of_ranks[rank[0]] = Column("seconds", place, *rank[1:])
        else:
            unused.append(name)
    has_times = (
        "seconds" in by_kind or {"start", "end"} <= by_kind.keys() or by_kind.keys() & {*WORK}
    )
    if "rank" in by_kind and has_times:
        return Columns(by_kind, tuple(unused))
    if len(of_ranks) >= 2 and "rank" not in by_kind:
        long = {"rank": Column("rank", 0), "seconds": Column("seconds", 2)}
        if "step" not in by_kind:
            return Columns(long, tuple(unused), of_ranks)
        long["step"] = Column("step", 1)
        return Columns(long, tuple(unused), of_ranks, by_kind["step"].place)
    raise BadInputFile(
        f"{of_file}: no step times: its columns are {', '.join(head)[:200]}",
        next_step="It takes a column `rank`, a column `step`, and `seconds` (or `start` and "
        "`end`); or a column for each rank: `step,rank0,rank1`.",
    )


def _column(name: str, place: int) -> Column | None:
    plain = re.sub(r"[\s_-]+", "_", name.strip().strip("\"'").lower())
    if plain in _NAMES:
        kind = _NAMES[plain]
        told = plain in ("seconds", "second", "sec", "secs", "step_seconds")
        return Column(kind, place, 1.0, told)
    measured = _WITH_UNIT.fullmatch(plain)
    if measured is None or measured["name"] not in _NAMES:
        return None
    kind = _NAMES[measured["name"]]
    kind = "other" if kind == "host" else kind
    return Column(kind, place, _UNITS[measured["unit"]], True) if kind in TIMES else None


def _rank_of(name: str) -> tuple[int, float, bool] | None:
    """(rank, factor, whether its unit is told) of a column that holds one rank's times."""
    plain = name.strip().strip("\"'").lower()
    factor, told = 1.0, False
    if measured := _WITH_UNIT.fullmatch(plain):
        plain, factor, told = measured["name"], _UNITS[measured["unit"]], True
    matched = _OF_RANK.fullmatch(plain)
    return None if matched is None else (int(matched["rank"]), factor, told)
