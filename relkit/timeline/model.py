"""What one rank did, as it was recorded, and what is drawn of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from relkit.hook.model import Communicator, OpKind

Rows = npt.NDArray[Any]

# A step of a rank, cut by marks of its loop (exact) or by what repeats.
STEP = np.dtype([("number", "<i8"), ("begin_ns", "<i8"), ("end_ns", "<i8"), ("exact", "?")])

STEP_MARK, INPUT_MARK, GC_MARK = "step", "input", "gc"


def no_steps() -> Rows:
    """A table of steps without rows."""
    return np.empty(0, STEP)


@dataclass(frozen=True, slots=True)
class Hook:
    """What a row's `hook` means.

    Args:
        name: short name of the operation; kind: what sort it is.
    """

    name: str
    kind: OpKind


@dataclass(frozen=True, slots=True)
class RankIdentity:
    """Whose a timeline is, and by which clock.

    Args:
        rank: global; world_size: ranks of the job, 0 where not known.
        host: name; pid: of the process there.
        clock: equal for ranks whose times are of one clock.
        unix_offset_ns: add to a time to get Unix time, ns, as that host had it.
    """

    rank: int
    world_size: int
    host: str
    pid: int
    clock: str
    unix_offset_ns: int


@dataclass(frozen=True, slots=True)
class Lost:
    """How much of what a rank did is not in its timeline.

    Args:
        events: collectives, sends, receives and marks that were overwritten before they were read.
        work: products, kernels and memory calls that were.
        unrecorded: operations for which the recorder itself had no room.
        small: products too small to be timed.
    """

    events: int = 0
    work: int = 0
    unrecorded: int = 0
    small: int = 0

    @property
    def dropped(self) -> int:
        """All but the small ones, which nobody meant to record."""
        return self.events + self.work + self.unrecorded


@dataclass(frozen=True, slots=True, eq=False)
class RankTimeline:
    """What is known of one rank.

    Args:
        identity: whose it is.
        hooks: what the rows' `hook` means, by number.
        groups: its process groups, by number.
        rows: layout.OP; `end_ns` 0: still in flight at `end_ns`.
        steps: STEP.
        begin_ns, end_ns: the stretch that was looked at, by the rank's clock; 0 = not known.
        lost: what is missing.
        cut: why the file is not whole, "" where it is.
        details: more of single rows, by their place.
    """

    identity: RankIdentity
    hooks: tuple[Hook, ...]
    groups: tuple[Communicator, ...]
    rows: Rows
    steps: Rows = field(default_factory=no_steps)
    begin_ns: int = 0
    end_ns: int = 0
    lost: Lost = Lost()
    cut: str = ""
    details: Mapping[int, Mapping[str, int | float | str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HostEvent:
    """Something that a launcher noted, by the clock of its host.

    Args:
        clock: as of RankIdentity; host: name.
        begin_ns, end_ns: Unix time by that host's clock; equal for what took no time.
        name: in a few words; text: in more.
        rank: that it is about, -1 for none.
    """

    clock: str
    host: str
    begin_ns: int
    end_ns: int
    name: str
    text: str = ""
    rank: int = -1


Value = int | float | str


FIRST, NEXT, LAST = "first", "next", "last"


class Slice(NamedTuple):
    """One thing on a track.

    Args:
        name: of it; start_ns: on the trace's clock; end_ns: None = it was not over.
        values: what is shown with it.
        flow: ties it to others, 0 = to none; role: FIRST, NEXT or LAST of them by time, "" where
            that is not known.
        category: what sort it is.
    """

    name: str
    start_ns: int
    end_ns: int | None
    values: Sequence[tuple[str, Value]] = ()
    flow: int = 0
    role: str = ""
    category: str = ""


@dataclass(frozen=True, slots=True)
class Track:
    """A line of the trace.

    Args:
        number: unique among those of the rank; name: shown.
    """

    number: int
    name: str
