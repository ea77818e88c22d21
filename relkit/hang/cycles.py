"""Ranks that wait for one another in different operations: which of them deviated."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from relkit.hang.groups import Group
from relkit.hang.sequence import Shape, shape
from relkit.hang.waits import Wait
from relkit.hook.model import Op
from relkit.ranks import RankSet

# A call as any rank with the same kinds of groups would make it: the position of the group among
# the rank's own, and the shape. Names of groups differ between replicas of a parallel layout.
_Call = tuple[int, Shape]


@dataclass(frozen=True, slots=True)
class _Path:
    """The collectives of one rank.

    Args:
        layout: sizes of its groups, in the order in which it made them.
        calls: all calls that are still recorded, in order of their start.
        starts: by group (its place in the layout): sorted (start, number).
        ops: by group and number: the operation.
    """

    layout: tuple[int, ...]
    calls: tuple[_Call, ...]
    starts: tuple[tuple[tuple[int, int], ...], ...]
    ops: Mapping[tuple[int, int], Op]

    @property
    def last(self) -> tuple[int, int] | None:
        """Group and number of the call that it started last."""
        return max(self.ops, key=lambda key: self.ops[key].start_ns, default=None)

    def reached(self, at: tuple[int, int]) -> tuple[int, ...]:
        """The newest number in each other group when it started the call `at`."""
        start_ns = self.ops[at].start_ns
        newest = []
        for group, starts in enumerate(self.starts):
            before = bisect_left(starts, (start_ns, -1))
            own = group == at[0]
            newest.append(-1 if own or not before else max(seq for _, seq in starts[:before]))
        return tuple(newest)


def _path(rank: int, groups: Sequence[Group]) -> _Path:
    own = [(group, group.members[rank]) for group in groups if rank in group.members]
    # As the rank made them, which is the same order on all: names do not sort like that.
    own.sort(key=lambda each: each[1].index)
    ops = {(i, seq): op for i, (_, m) in enumerate(own) for seq, op in m.ops.items()}
    ordered = sorted((op.start_ns, i, op.seq) for (i, _), op in ops.items())
    return _Path(
        layout=tuple(group.size for group, _ in own),
        calls=tuple((i, shape(ops[i, seq])) for _, i, seq in ordered),
        starts=tuple(
            tuple(sorted((op.start_ns, seq) for seq, op in member.ops.items())) for _, member in own
        ),
        ops=ops,
    )


def astray(cycle: RankSet, waits: Sequence[Wait], groups: Sequence[Group]) -> RankSet:
    """The ranks of a cycle that left the common sequence of calls; empty where that is unclear.

    Three tests are tried until one has a result. Replicas: other ranks have made the same call, but
    after more or fewer calls in their other groups. History: nobody ever made that call after
    the one before. Votes: a rank that leaves out a collective is waited for by its whole group,
    and waits itself for ranks for which hardly anybody else waits.

    Args:
        cycle: ranks that wait for one another.
        waits: all waits of the job.
        groups: all groups of the job.
    """
    everyone = sorted({rank for group in groups for rank in group.members})
    paths = {rank: _path(rank, groups) for rank in everyone}
    for witness in (_against_replicas, _against_history):
        odd = witness(cycle, paths)
        if 0 < len(odd) * 2 <= len(cycle):
            return RankSet.of(odd)
    return RankSet.of(_outvoted(cycle, waits))


def _against_replicas(cycle: RankSet, paths: Mapping[int, _Path]) -> list[int]:
    # All that made a call are counted once a call, however many ranks of the cycle are in it.
    counted: dict[tuple[tuple[int, ...], tuple[int, int]], Counter[tuple[int, ...]]] = {}
    odd = []
    for rank in cycle:
        path = paths.get(rank)
        at = path.last if path else None
        if path is None or at is None:
            continue
        if (path.layout, at) not in counted:
            counted[path.layout, at] = Counter(
                p.reached(at) for p in paths.values() if p.layout == path.layout and at in p.ops
            )
        own = path.reached(at)
        others = counted[path.layout, at] - Counter([own])
        if others:
            common, count = others.most_common(1)[0]
            if count * 2 > others.total() and common != own:
                odd.append(rank)
    return odd


def _against_history(cycle: RankSet, paths: Mapping[int, _Path]) -> list[int]:
    makers: dict[tuple[_Call, _Call], set[int]] = {}
    for rank, path in paths.items():
        for step in pairwise(path.calls):
            makers.setdefault(step, set()).add(rank)
    odd = []
    for rank in cycle:
        calls = paths[rank].calls if rank in paths else ()
        if len(calls) < 3:
            continue
        newest = (calls[-2], calls[-1])
        if newest not in set(pairwise(calls[:-1])) and makers[newest] == {rank}:
            odd.append(rank)
    return odd


def _outvoted(cycle: RankSet, waits: Sequence[Wait]) -> list[int]:
    votes = dict.fromkeys(cycle, 0)
    for wait in waits:
        waiters = wait.waiters & cycle
        if wait.exact and waiters:
            for rank in wait.missing & cycle:
                votes[rank] += len(waiters - RankSet.of([rank]))
    most = max(votes.values())
    first = [rank for rank in cycle if votes[rank] == most]
    return first if len(first) * 2 < len(cycle) else []


def left_out(rank: int, waits: Sequence[Wait]) -> Wait | None:
    """The collective in which most others wait for this rank."""
    waited = [w for w in waits if w.exact and rank in w.missing]
    return max(waited, key=lambda w: (len(w.waiters), -w.seq), default=None)
