"""Ranks that called a different collective than the rest of their group, or skipped one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from relkit.hang.groups import Group
from relkit.hang.words import numbered, size, torch_name
from relkit.hook.model import Op
from relkit.ranks import RankSet

# Ranks of these legitimately pass different sizes: roots differ, and so do uneven parts.
_UNEVEN = frozenset({"allgatherv", "alltoallv", "gather", "scatter", "connect"})

# Calls that are compared with those before an earlier one.
_LONGEST = 64

Shape = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Disagreement:
    """Members of one group that made different calls under the same number.

    Args:
        group: where.
        seq: the first number at which they differ.
        odd: the ranks that deviated; empty where that is unclear.
        odd_op: what these called; rest_op: what the others called.
        rest: the others that got there.
        skipped: the odd ranks skipped a call of the others, and made the one that follows it.
        certain: a clear majority or the group's own history shows who deviated.
    """

    group: Group
    seq: int
    odd: RankSet
    rest: RankSet
    odd_op: Op
    rest_op: Op
    skipped: bool
    certain: bool

    def sentence(self) -> str:
        """What the odd ranks did."""
        if self.skipped:
            return (
                f"skipped {numbered(self.rest_op.name, self.seq)} of {self.group.title} and "
                f"called the {torch_name(self.odd_op.name)} that follows it"
            )
        mine, theirs = torch_name(self.odd_op.name), torch_name(self.rest_op.name)
        if mine == theirs:
            mine += f" of {size(self.odd_op.size_bytes)}"
            theirs = f"one of {size(self.rest_op.size_bytes)}"
        return f"called {mine} as #{self.seq} of {self.group.title}, where the others call {theirs}"


def shape(op: Op) -> Shape:
    """What must be equal on all members of a group at one number."""
    return op.name, 0 if op.name in _UNEVEN else op.size_bytes


def _same(a: Shape, b: Shape) -> bool:
    return a[0] == b[0] and (a[1] == b[1] or not a[1] or not b[1])


def disagreements(groups: Sequence[Group]) -> tuple[Disagreement, ...]:
    """The first disagreement of every group in which somebody is stuck."""
    differing = []
    for group in groups:
        if any(member.stuck for member in group.members.values()):
            first = _first(group)
            if first is not None:
                differing.append(first)
    return tuple(differing)


def _first(group: Group) -> Disagreement | None:
    # Long before the place where the group is stuck, a difference did no harm and is no proof.
    stuck_at = min(op.seq for m in group.members.values() for op in m.stuck)
    numbers = sorted({seq for m in group.members.values() for seq in m.ops if seq >= stuck_at - 1})
    for seq in numbers:
        by_shape: dict[Shape, list[int]] = {}
        for rank in sorted(group.members):
            op = group.members[rank].ops.get(seq)
            if op is not None:
                own = shape(op)
                known = next((s for s in by_shape if _same(s, own)), own)
                by_shape.setdefault(known, []).append(rank)
        if len(by_shape) > 1:
            return _judge(group, seq, by_shape)
    return None


def _judge(group: Group, seq: int, by_shape: Mapping[Shape, list[int]]) -> Disagreement:
    counts = sorted(by_shape.items(), key=lambda item: (-len(item[1]), item[1]))
    certain = len(counts[0][1]) > len(counts[1][1])
    right = counts[0][0]
    if not certain:
        expected = _expected(group, seq)
        usual = [s for s in by_shape if expected is not None and _same(s, expected)]
        if len(usual) != 1:
            past = _history(group, seq).values()
            usual = [s for s in by_shape if any(_same(s, earlier) for earlier in past)]
        if len(usual) == 1:
            right, certain = usual[0], True
    odd = [rank for s, ranks in by_shape.items() if s != right for rank in ranks]
    rest = by_shape[right]
    odd_op = group.members[min(odd)].ops[seq]
    rest_op = group.members[min(rest)].ops[seq]
    return Disagreement(
        group=group,
        seq=seq,
        odd=RankSet.of(odd) if certain else RankSet(),
        rest=RankSet.of(rest),
        odd_op=odd_op,
        rest_op=rest_op,
        skipped=certain and _follows(group, seq, rest, rest_op, odd_op),
        certain=certain,
    )


def _history(group: Group, before: int) -> dict[int, Shape]:
    """What the group called under each number before it disagreed, from any member."""
    known: dict[int, Shape] = {}
    for rank in sorted(group.members):
        for seq, op in group.members[rank].ops.items():
            if seq < before:
                known.setdefault(seq, shape(op))
    return known


def _expected(group: Group, seq: int) -> Shape | None:
    """What the group's own past says should come at `seq`: steps of training repeat.

    Of the stretches of calls that ended like the one before `seq`, the longest counts, and of
    these the newest: equal calls may come several times within a step.
    """
    history = _history(group, seq)
    alike = {earlier: _alike(history, earlier, seq) for earlier in history}
    best = max(alike, key=lambda earlier: (alike[earlier], earlier), default=None)
    return history[best] if best is not None and alike[best] else None


def _alike(history: Mapping[int, Shape], earlier: int, seq: int) -> int:
    """How many calls just before two numbers are equal."""
    back = 1
    while back <= _LONGEST and earlier - back in history:
        if history[earlier - back] != history.get(seq - back):
            break
        back += 1
    return back - 1


def _follows(group: Group, seq: int, rest: Sequence[int], rest_op: Op, odd_op: Op) -> bool:
    """The odd call is what the others call next, now or in an earlier step."""
    if _same(shape(rest_op), shape(odd_op)):
        return False
    for rank in rest:
        following = group.members[rank].ops.get(seq + 1)
        if following is not None:
            return _same(shape(following), shape(odd_op))
    history = _history(group, seq)
    # Not only the newest: now and then a step goes on otherwise, with an evaluation.
    return any(
        _same(call, shape(rest_op))
        and earlier + 1 in history
        and _same(history[earlier + 1], shape(odd_op))
        for earlier, call in history.items()
    )
