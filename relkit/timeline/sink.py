"""What a trace is written to, one rank after the other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from relkit.timeline.model import HostEvent, Slice, Track, Value


@dataclass(frozen=True, slots=True)
class TraceFacts:
    """What is said of a whole trace.

    Args:
        origin_ns: Unix time of the least time in it, ns.
        facts: shown with the trace: errors of clocks, what was dropped.
    """

    origin_ns: int
    facts: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RankHead:
    """How a rank is shown.

    Args:
        rank: global; name: of its block of tracks; facts: shown with it.
    """

    rank: int
    name: str
    facts: Mapping[str, Value] = field(default_factory=dict)


class TraceSink(Protocol):
    """Where a trace goes. Whoever writes calls these in the order in which they stand here."""

    def begin(self, facts: TraceFacts) -> None:
        """The trace begins."""
        ...

    def host_events(self, events: Iterable[HostEvent]) -> None:
        """What launchers noted, on the trace's clock, by begin."""
        ...

    def rank(self, head: RankHead) -> None:
        """The tracks of a rank follow."""
        ...

    def track(self, track: Track, slices: Iterable[Slice]) -> None:
        """A track of that rank; slices by start, none overlaps another."""
        ...

    def end(self) -> None:
        """The trace ends."""
        ...
