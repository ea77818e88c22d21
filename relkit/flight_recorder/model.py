"""What a dump of PyTorch's flight recorder holds, checked and in one form for all versions.

Source: torch/csrc/distributed/c10d/FlightRecorder.hpp; formats 2.0 to 2.10 (torch 2.13).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from relkit.stacks.model import Frame

# Of an operation that a log alone knows: behind all others, and not the first of the rank.
FROM_LOG_ID = 1 << 40


@dataclass(frozen=True, slots=True)
class FlightEntry:
    """One operation of one rank.

    Args:
        record_id: counts all operations of the rank.
        group: name of the process group; description: what its maker called it.
        backend: `nccl`, `gloo`, ...; name: `all_reduce`, `send`, ...
        source, destination: ranks in the group, of a send or recv; else -1.
        seq: number among the group's collectives (or sends and receives), from 1.
        is_p2p: a send or recv.
        size_bytes: the larger one of input and output, 0 where that is not recorded.
        dtypes: of its input and output, without repetition.
        state: `scheduled` (by the host), `started` (by the device) or `completed`.
        retired: torch has seen it end, well or not.
        created_ns, started_ns, completed_ns: Unix time, ns; 0 where that is not recorded.
        timeout_s: torch's limit for it, s; 0 where that is not recorded.
        frames: the Python stack that called it, innermost first; empty where the dump has none.
    """

    record_id: int
    group: str
    description: str
    backend: str
    name: str
    source: int
    destination: int
    seq: int
    is_p2p: bool
    size_bytes: int
    dtypes: tuple[str, ...]
    state: str
    retired: bool
    created_ns: int
    started_ns: int
    completed_ns: int
    timeout_s: float
    frames: tuple[Frame, ...]

    @property
    def in_flight(self) -> bool:
        """Whether it had not ended when the dump was written."""
        return self.state != "completed" and not self.retired


@dataclass(frozen=True, slots=True)
class FlightDump:
    """The dump of one rank.

    Args:
        rank: global rank, from the file's name.
        version: of the format.
        groups: its process groups: name -> global ranks in the order of the group.
        descriptions: their descriptions, by name.
        entries: in the order in which it called them.
        enqueued: number of its last collective, by group, where a log or the recorder's own counts
            know more than `entries`.
        completed: of the last one that has completed, by group, where the recorder counts that.
        is_from_log: nothing else is known of the rank than what logs say.
    """

    rank: int
    version: str
    groups: Mapping[str, tuple[int, ...]]
    descriptions: Mapping[str, str]
    entries: tuple[FlightEntry, ...]
    enqueued: Mapping[str, int] = field(default_factory=dict)
    completed: Mapping[str, int] = field(default_factory=dict)
    is_from_log: bool = False

    @property
    def is_empty(self) -> bool:
        """Neither an operation nor a count is in it: it says no more than a missing one."""
        return not self.entries and not any(self.enqueued.values())

    @property
    def overwritten(self) -> int:
        """How many of its first operations the ring had no room for any more."""
        if not self.entries or all(entry.in_flight for entry in self.entries):
            return 0  # torch can also write those alone that have not ended
        first = self.entries[0].record_id
        return max(0, first - 1) if first != FROM_LOG_ID else 0
