"""A finished step: of one rank, as its node reports it, and of all ranks, as it is scored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from relkit.straggler.host_load import HostLoad
from relkit.straggler.model import Floats, PartTimes

# Numbers of operations, the same on every host whatever its hook's table looks like.
OPERATIONS = (
    "other",
    "allreduce",
    "allgather",
    "allgatherv",
    "reduce_scatter",
    "broadcast",
    "reduce",
    "gather",
    "scatter",
    "alltoall",
    "alltoallv",
    "barrier",
    "connect",
)
# Nobody leaves one of these before everybody has come.
SYNCHRONISING = tuple(
    OPERATIONS.index(name)
    for name in ("allreduce", "allgather", "allgatherv", "alltoall", "alltoallv", "barrier")
)

COLLECTIVE = np.dtype(
    [
        ("communicator", "<i4"),
        ("operation", "<i4"),
        ("seq", "<i8"),
        ("size_bytes", "<i8"),
        ("start_ns", "<i8"),
        ("end_ns", "<i8"),
    ]
)


def operation_number(name: str) -> int:
    """Place in OPERATIONS of a hook's short name; 0 for one that is not listed."""
    return OPERATIONS.index(name) if name in OPERATIONS else 0


def no_collectives() -> npt.NDArray[Any]:
    """A table without rows."""
    return np.empty(0, COLLECTIVE)


@dataclass(frozen=True, slots=True)
class StepRecord:
    """What one rank did in one step; all times by the clock of its own host.

    Args:
        rank: global; host: where it runs.
        peers_key: equal for ranks that do equal work. Made of what a step communicates, without
            the names of groups.
        step: its number, equal on all peers; it grows, but a number may be left out (evaluation
            between two steps), and it begins anew where the job takes up another pattern.
        exact: by marks of the loop, not inferred.
        begin_ns, end_ns: Unix time, ns. A step begins where the one before has ended.
        parts: where the rank's time went.
        collectives: COLLECTIVE rows by end, times in Unix ns; `communicator` is a place in
            `groups`, `operation` one in OPERATIONS.
        groups: (name, size, rank in group).
    """

    rank: int
    host: str
    peers_key: str
    step: int
    exact: bool
    begin_ns: int
    end_ns: int
    parts: PartTimes
    collectives: npt.NDArray[Any] = field(default_factory=no_collectives)
    groups: tuple[tuple[str, int, int], ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class StepTable:
    """One step of all ranks of the job, as arrays over the rank.

    Args:
        step: grows by one at least from step to step, also where the job takes up another pattern
            or starts again.
        parts: (len(PARTS), ranks), s; NaN in all rows of a rank that has not reported the step.
        late_s: by how much the rank came after the middle of its groups, added up over the
            step's collectives; NaN = not known, as before the collectives are matched.
        records: that it was made of, by rank.
    """

    step: int
    parts: Floats
    late_s: Floats
    records: tuple[StepRecord, ...] = ()


class RankProcess(Protocol):
    """A rank on this node: relkit.launch.job.settings.LocalRank is one."""

    @property
    def rank(self) -> int:
        """Global rank."""
        ...

    @property
    def pid(self) -> int:
        """Process that was started for it."""
        ...


class StepSource(Protocol):
    """Where finished steps come from."""

    def collect(self, ranks: Sequence[RankProcess]) -> tuple[StepRecord, ...]:
        """Steps of these ranks that have finished since the last call, by rank and step."""
        ...

    def notes(self) -> tuple[str, ...]:
        """What was not seen so far, one sentence each."""
        ...

    @property
    def load(self) -> HostLoad | None:
        """Who has the cores of this node; None where that is not known yet."""
        ...
