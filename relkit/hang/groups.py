"""Process groups matched across ranks, and how far each member has come in each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from relkit.hang.model import JobView
from relkit.hang.words import group_title, numbered
from relkit.hook.model import Communicator, HookState, Op, OpKind
from relkit.ranks import RankSet

GroupKey = tuple[str, int, int, int]


@dataclass(frozen=True, slots=True)
class Member:
    """One rank in one group.

    Args:
        newest: sequence number of the newest collective that it started, -1 for none.
        ops: collectives by sequence number: those still in the recorder, and those in flight.
        stuck: those in flight, oldest first; where nothing is in flight and its newest one
            ended in an error, that one.
        done: all collectives up to this number have ended, as far as is known; -1 for none.
        place: its rank in the group; index: of its communicator.
    """

    newest: int
    ops: Mapping[int, Op]
    stuck: tuple[Op, ...]
    done: int = -1
    place: int = -1
    index: int = -1

    def has_finished(self, seq: int) -> bool:
        """It has called this collective, and that has ended there."""
        op = self.ops.get(seq)
        return seq <= self.done if op is None else bool(op.end_ns) and not op.failed


@dataclass(frozen=True, slots=True)
class Group:
    """One process group.

    Args:
        key: equal for the same group in equal jobs, and sortable.
        title: how to call it in a sentence.
        size: number of its ranks.
        ranks: its ranks, as far as they are known.
        complete: `ranks` holds all of them.
        members: what the recorders of its ranks say; a rank without data is missing here.
        at_place: the rank of each place in the group, of those that have data.
    """

    key: GroupKey
    title: str
    size: int
    ranks: RankSet
    complete: bool
    members: Mapping[int, Member] = field(default_factory=dict)
    at_place: Mapping[int, int] = field(default_factory=dict)

    def behind(self, seq: int) -> RankSet:
        """Known ranks that have not started collective `seq`."""
        return self.ranks - RankSet.of(
            rank for rank, member in self.members.items() if member.newest >= seq
        )

    def rank_at(self, place: int) -> int | None:
        """The global rank that has a rank in the group; None where it is not known."""
        if place in self.at_place:
            return self.at_place[place]
        whole_world = self.complete and self.ranks == RankSet.world(self.size)
        return place if whole_world and 0 <= place < self.size else None

    def call(self, op: Op) -> str:
        """`all_reduce #41 of the default group`."""
        return f"{numbered(op.name, op.seq)} of {self.title}"


def _member(state: HookState, communicator: Communicator) -> Member:
    ops: dict[int, Op] = {}
    stuck = []
    for op in (*state.recent, *state.in_flight):
        if op.kind is OpKind.COLLECTIVE and op.communicator == communicator.index and op.seq >= 0:
            ops[op.seq] = op
            if op.end_ns == 0:
                stuck.append(op)
    newest = max([communicator.seq, *ops])
    if not stuck and newest in ops and ops[newest].failed:
        stuck.append(ops[newest])
    stuck.sort(key=lambda op: (op.seq, op.start_ns))
    # A communicator's operations end in the order of their calls.
    ended = max((seq for seq, op in ops.items() if op.end_ns and not op.failed), default=-1)
    done = max(ended, communicator.done)
    if stuck:
        done = min(done, stuck[0].seq - 1)
    return Member(newest, ops, tuple(stuck), done, communicator.rank, communicator.index)


def _newest_of_each_name(state: HookState) -> list[Communicator]:
    """A group that was destroyed and made again keeps its name: only the last one counts."""
    chosen: dict[tuple[str, int], Communicator] = {}
    for c in sorted(state.communicators, key=lambda c: c.index):
        if c.size > 1:
            chosen[(c.name, -1 if c.name else c.index)] = c
    return list(chosen.values())


def groups_of(job: JobView) -> tuple[Group, ...]:
    """All groups of a job, in a fixed order.

    Groups are matched by name and size, by index and size where they have no name. Disjoint
    groups may share a name (torch counts names per process): then the n-th rank that has place p
    in such a group belongs to the n-th group, which holds for block and for strided layouts.
    """
    seen: dict[tuple[str, int, int], list[tuple[int, HookState, Communicator]]] = {}
    for view in sorted(job.ranks, key=lambda v: v.rank):
        if view.hook is None:
            continue
        for c in _newest_of_each_name(view.hook):
            label = (c.name, c.size, -1 if c.name else c.index)
            seen.setdefault(label, []).append((view.rank, view.hook, c))
    groups = []
    for (name, size, index), holders in sorted(seen.items()):
        for number, part in enumerate(_split(holders, size)):
            groups.append(_group((name, size, index, number), part, job))
    return tuple(groups)


def _split(
    holders: Sequence[tuple[int, HookState, Communicator]], size: int
) -> list[list[tuple[int, HookState, Communicator]]]:
    if len(holders) <= size and len({c.rank for _, _, c in holders}) == len(holders):
        return [list(holders)]
    times: dict[int, int] = {}
    parts: list[list[tuple[int, HookState, Communicator]]] = []
    for holder in holders:
        place = holder[2].rank
        number = times.get(place, 0)
        times[place] = number + 1
        if number == len(parts):
            parts.append([])
        parts[number].append(holder)
    return parts


def _group(
    key: GroupKey, holders: Sequence[tuple[int, HookState, Communicator]], job: JobView
) -> Group:
    communicator = holders[0][2]
    listed = job.listed.get((holders[0][0], communicator.name), ())
    if communicator.size == job.world_size:
        ranks = RankSet.world(job.world_size)
    elif len(listed) == communicator.size:
        ranks = RankSet.of(listed)
    else:
        ranks = RankSet.of(rank for rank, _, _ in holders)
        listed = ()
    return Group(
        key=key,
        title=group_title(communicator, job.world_size, ranks),
        size=communicator.size,
        ranks=ranks,
        complete=len(ranks) == communicator.size,
        members={rank: _member(state, c) for rank, state, c in holders},
        # Of several at one place, which no correct job has, the first.
        at_place={
            **dict(enumerate(listed)),
            **{c.rank: rank for rank, _, c in reversed(holders)},
        },
    )
