"""The facts of the page of a hang; all of them are bounded, however large the job is."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from relkit.hang_picture.actions import Action


@dataclass(frozen=True, slots=True)
class Blamed:
    """One rank at fault.

    Args:
        rank, host, pid: who.
        category: of relkit.hang.model; finding: the id under which it is explained.
        place: the line to blame, `examples/train.py:88 next_batch`; "" where it is not known.
        doing: what it does there, or what it did, in words.
        score: 0..1; how much the proof is worth.
        advice: what to do next, for a person who was woken up.
        commands: what to type first.
    """

    rank: int
    host: str
    pid: int
    category: str
    finding: str
    place: str
    doing: str
    score: float
    advice: str
    commands: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WaitFact:
    """One thing that ranks wait in.

    Args:
        what: `all_reduce #41 of the default group`.
        waiters, missing: folded ranks; nobody is missing where all have come.
        exact: `missing` follows from numbers of calls; else it is every rank that does not wait.
        in_flight_s: the longest that a rank has been in it; None where not known.
    """

    what: str
    waiters: str
    missing: str
    exact: bool
    in_flight_s: float | None


@dataclass(frozen=True, slots=True)
class WaitNode:
    """Ranks that are in the same situation.

    Args:
        ranks: folded; count: how many.
        layer: how many steps away from somebody who waits for nobody.
        culprit: they are at fault.
        lines: what they do, one thing a line; where they do many things, some of them.
    """

    ranks: str
    count: int
    layer: int
    culprit: bool
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WaitGraph:
    """Who waits for whom.

    Args:
        nodes: by layer, those at fault first.
        edges: (who waits, for whom), numbers of nodes.
        is_folded: ranks in different operations of one sort share a node, for want of room.
    """

    nodes: tuple[WaitNode, ...] = ()
    edges: tuple[tuple[int, int], ...] = ()
    is_folded: bool = False


@dataclass(frozen=True, slots=True)
class Progress:
    """Members of a group that have come equally far.

    Args:
        ranks: folded; count: how many.
        completed: number of the last collective that ended, -1 for none.
        in_flight: the collective that they are in, `all_reduce #41 (4 KiB)`; "" for none.
        in_flight_s: the longest that one of them has been in it; None where not known.
        is_behind: another member has started a later collective.
    """

    ranks: str
    count: int
    completed: int
    in_flight: str
    in_flight_s: float | None
    is_behind: bool


@dataclass(frozen=True, slots=True)
class GroupProgress:
    """One process group, and how far its members have come.

    Args:
        title: how to call it; size: number of its ranks.
        agrees: all its members have come equally far.
        members: those behind first.
        unseen: members of which no recorder is known, folded.
        left_out: rows that there was no room for in `members`.
    """

    title: str
    size: int
    agrees: bool
    members: tuple[Progress, ...]
    unseen: str
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class TransferFact:
    """One send or receive in flight.

    Args:
        rank: who is in it; direction: "send" or "recv"; peer: the other end, a global rank.
        group: its title; size_bytes: its size; tag: 0 also where there is none.
        number: its place in the order of the transfers of that direction, peer and tag, from 0.
        in_flight_s: for how long; None where not known.
        peer_called: how many of the other half the peer has called; None where not known.
        peer_size_bytes: size of the other half; None where not known.
        missing: the peer has not come to the other half.
    """

    rank: int
    direction: str
    peer: int
    group: str
    size_bytes: int
    tag: int
    number: int
    in_flight_s: float | None
    peer_called: int | None
    peer_size_bytes: int | None
    missing: bool


@dataclass(frozen=True, slots=True)
class StackClass:
    """Ranks whose main threads stand at the same place.

    Args:
        ranks: folded; count: how many.
        culprit: one of them is at fault.
        place: innermost line of the job's own code; "" where there is none.
        doing: what they do, in words.
        frames: the stack, innermost first, `function  file:line`.
    """

    ranks: str
    count: int
    culprit: bool
    place: str
    doing: str
    frames: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TimelineOp:
    """One operation of a rank; times in s before the look at it, by its own clock.

    Args:
        what: `all_reduce #41 of the default group`.
        kind: "collective", "transfer" or "compute".
        began_s: when it began; ended_s: when it ended, None where it is in flight.
        failed: it ended with an error.
    """

    what: str
    kind: str
    began_s: float
    ended_s: float | None
    failed: bool


@dataclass(frozen=True, slots=True)
class RankTimeline:
    """What a rank did last.

    Args:
        rank: who; culprit: it is at fault.
        ops: oldest first.
    """

    rank: int
    culprit: bool
    ops: tuple[TimelineOp, ...]


@dataclass(frozen=True, slots=True)
class LeftOut:
    """How much of each list there was no room for."""

    waits: int = 0
    groups: int = 0
    transfers: int = 0
    stack_classes: int = 0
    timeline: int = 0


@dataclass(frozen=True, slots=True)
class HangPicture:
    """All that the page draws of a hang.

    Args:
        blamed: the ranks at fault, most likely first.
        waiting: how many ranks wait for others and are not at fault.
        waits, wait_graph: who waits for whom, exactly and folded for a drawing.
        groups: how far each has come, those that disagree first.
        transfers: sends and receives in flight, those whose peer has not come first.
        stack_classes: outliers first.
        timeline: the last operations of each rank.
        actions: what relkit did, by time.
        left_out: how much more there is.
        notes: what could not be read.
    """

    blamed: tuple[Blamed, ...] = ()
    waiting: int = 0
    waits: tuple[WaitFact, ...] = ()
    wait_graph: WaitGraph = WaitGraph()
    groups: tuple[GroupProgress, ...] = ()
    transfers: tuple[TransferFact, ...] = ()
    stack_classes: tuple[StackClass, ...] = ()
    timeline: tuple[RankTimeline, ...] = ()
    actions: tuple[Action, ...] = ()
    left_out: LeftOut = LeftOut()
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types; the keys of `relkit.report/1` that are its own."""
        return asdict(self)
