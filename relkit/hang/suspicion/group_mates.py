"""Which other ranks of a large job to ask: likely members of the groups that ranks wait in; pure.

A rank waits for members of its own group. Its recorder knows its place in the group and how large
the group is, but not the other members. In real jobs members are evenly spaced (blocks and strides
of a mesh of ranks), so two members of a group, or of one like it, show where the others should be.
The result is only a list of ranks to ask: one that is not in the group costs a question.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from relkit.hang.model import RankView
from relkit.hook.model import Communicator
from relkit.ranks import RankSet

# Larger groups are those of data parallelism and the whole job: who is missing there stands out.
_MAX_SIZE = 64
# The number of the group among those of its rank, and its size: such groups are alike.
_Alike = tuple[int, int]


def group_mates(views: Sequence[RankView], world_size: int, asked: RankSet, count: int) -> RankSet:
    """More ranks to ask about; first those that others have waited for longest.

    Args:
        views: of ranks that are known in full; world_size: ranks of the job.
        asked: ranks that are asked about already; count: how many more may be.
    """
    known = {*asked, *(view.rank for view in views)}
    spacing = _spacing_of(views)
    mates: dict[int, None] = {}
    for _, rank, group in sorted(_waited_in(views), key=lambda wait: wait[:2]):
        stride = spacing.get((group.index, group.size), 1)
        first = rank - group.rank * stride
        last = first + (group.size - 1) * stride
        if first < 0 or last >= world_size:
            continue
        members = [r for r in range(first, last + 1, stride) if r not in known and r not in mates]
        if len(mates) + len(members) <= count:
            mates.update(dict.fromkeys(members))
    return RankSet.of(mates)


def _waited_in(views: Iterable[RankView]) -> list[tuple[float, int, Communicator]]:
    """(minus its age in s, rank, group) of each operation in flight."""
    waited = []
    for view in views:
        state = view.hook
        if state is None or not view.alive:
            continue
        for op in state.in_flight:
            if not 0 <= op.communicator < len(state.communicators):
                continue
            group = state.communicators[op.communicator]
            if 1 < group.size <= _MAX_SIZE and 0 <= group.rank < group.size:
                waited.append((-(state.now_ns - op.start_ns) / 1e9, view.rank, group))
    return waited


def _spacing_of(views: Iterable[RankView]) -> dict[_Alike, int]:
    """The distance from one member to the next, by kind of group: what most pairs show."""
    seen: dict[tuple[str, int, int], tuple[int, int]] = {}
    votes: dict[_Alike, Counter[int]] = {}
    for view in sorted(views, key=lambda view: view.rank):
        for group in () if view.hook is None else view.hook.communicators:
            if not 1 < group.size <= _MAX_SIZE:
                continue
            label = (group.name, group.index, group.size)
            rank, place = seen.get(label, (view.rank, group.rank))
            seen[label] = (view.rank, group.rank)
            between, places = view.rank - rank, group.rank - place
            if places > 0 and between % places == 0:
                votes.setdefault((group.index, group.size), Counter())[between // places] += 1
    return {alike: counted.most_common(1)[0][0] for alike, counted in votes.items()}
