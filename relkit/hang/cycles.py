"""Ranks that wait for one another in different operations: which of them went astray."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from relkit.hang.groups import Group
from relkit.hang.waits import Wait
from relkit.hook.model import Op
from relkit.ranks import RankSet

_Step = tuple[tuple[str, int, int, int], str, int]


def astray(cycle: RankSet, waits: Sequence[Wait], groups: Sequence[Group]) -> RankSet:
    """The ranks of a cycle that left the common path; empty where that cannot be told.

    First the vote: a rank that leaves out a collective is waited for by its whole group, and
    waits itself for ranks that each only it waits for. Where the vote is a tie, history: the
    rank whose newest step never followed its last but one before.

    Args:
        cycle: ranks that wait for one another.
        waits: all waits of the job.
        groups: all groups of the job.
    """
    votes = dict.fromkeys(cycle, 0)
    for wait in waits:
        waiters = wait.waiters & cycle
        if wait.exact and waiters:
            for rank in wait.missing & cycle:
                votes[rank] += len(waiters - RankSet.of([rank]))
    most = max(votes.values())
    first = [rank for rank in cycle if votes[rank] == most]
    if len(first) * 2 < len(cycle) or (len(first) == 1 and len(cycle) > 2):
        return RankSet.of(first)
    steps = {rank: _steps(rank, groups) for rank in cycle}
    known: set[tuple[_Step, _Step]] = set()
    for path in steps.values():
        known.update(pairwise(path[:-1]))
    odd = [r for r, path in steps.items() if len(path) > 2 and (path[-2], path[-1]) not in known]
    return RankSet.of(odd) if 0 < len(odd) < len(cycle) else RankSet()


def _steps(rank: int, groups: Sequence[Group]) -> list[_Step]:
    """The collectives of one rank in all groups, in the order in which it started them."""
    found: list[tuple[int, _Step]] = []
    for group in groups:
        if rank in group.members:
            ops: Mapping[int, Op] = group.members[rank].ops
            found += [(op.start_ns, (group.key, op.name, op.size_bytes)) for op in ops.values()]
    return [step for _, step in sorted(found)]


def left_out(rank: int, waits: Sequence[Wait]) -> Wait | None:
    """The collective in which most others wait for this rank."""
    waited = [w for w in waits if w.exact and rank in w.missing]
    return max(waited, key=lambda w: (len(w.waiters), -w.seq), default=None)
