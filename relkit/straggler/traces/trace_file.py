"""One file of a profiler: whose it is, and what it tells of each step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from relkit.errors import BadInputFile
from relkit.flight_recorder.file_names import rank_of_name
from relkit.straggler.traces.json_events import TraceReader
from relkit.straggler.traces.trace_events import TraceEvents

# Ranks beyond this are no ranks, but numbers of something else.
MAX_RANK = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class TraceFile:
    """A trace that was read.

    Args:
        path: of the file; rank: None = nothing says it. world_size: None as well.
        events: as columns; properties: of the file, as they stand in it.
        cut: why it is not whole, "" if it is; damaged: events that could not be read.
    """

    path: Path
    rank: int | None
    world_size: int | None
    events: TraceEvents
    properties: Mapping[str, Any] = field(default_factory=dict)
    cut: str = ""
    damaged: int = 0

    @property
    def steps_are_whole_until_us(self) -> float:
        """The steps that end before this have all of their events; of a file that is cut, only
        where its events are in the order of time.
        """
        if not (self.cut or self.events.left_out):
            return float("inf")
        return self.events.newest_us if self.events.in_order else float("-inf")


def read_trace(path: Path, rank: int | None = None) -> TraceFile:
    """Read a trace as far as it goes.

    Args:
        path: of the file; rank: whose it is, where the user has told.

    Raises:
        BadInputFile: it cannot be opened, or is no trace.
    """
    reader, events = TraceReader(path), TraceEvents()
    for event in reader:
        events.add(event)
    if not len(events) and not events.marks:
        why = f" ({reader.cut})" if reader.cut else ""
        raise BadInputFile(f"{path}: it holds no events of a profiler{why}")
    told = reader.properties.get("distributedInfo")
    told = told if isinstance(told, dict) else {}
    if rank is None:
        rank = _whole(told.get("rank"))
    if rank is None:
        rank = rank_of_name(path, -1)
    world = _whole(told.get("world_size"))
    return TraceFile(
        path, rank if rank is None or rank < MAX_RANK else None, world, events,
        reader.properties, reader.cut, reader.damaged,
    )  # fmt: skip


def device_model(properties: Mapping[str, Any]) -> str:
    """Name of the model of the first device; "" where the trace has none."""
    listed = properties.get("deviceProperties")
    first = listed[0] if isinstance(listed, list) and listed else None
    name = first.get("name") if isinstance(first, dict) else None
    return name[:200] if isinstance(name, str) else ""


def host_of(trace: TraceFile) -> str:
    """Name of the host that it was written on; "" where nothing says it."""
    name = trace.properties.get("host_name")
    return name[:200] if isinstance(name, str) else ""


def _whole(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value < MAX_RANK else None
