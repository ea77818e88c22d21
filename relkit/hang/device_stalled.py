"""Ranks whose device is behind: what all have called has not begun there, or has not ended."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from relkit.hang.groups import Group
from relkit.hang.model import RankView
from relkit.hang.waits import Wait, sinks
from relkit.hang.words import for_seconds, of_ranks
from relkit.hook.model import HookState, Op
from relkit.ranks import RankSet

# No member ends one of these before all have brought their part of it.
_NEEDS_ALL = frozenset(
    {"allreduce", "allgather", "allgatherv", "reducescatter", "alltoall", "alltoallv", "barrier",
     "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "reduce_scatter_v"}
)  # fmt: skip
# What all have joined for less may just have ended here as well. Looks at running ranks are not of
# one moment, and torch's thread for gloo lets the host go on before it notes the end of a call.
_SURE_S = 5.0


@dataclass(frozen=True, slots=True)
class DeviceStall:
    """One rank whose device is stalled.

    Args:
        rank: which; wait: what the others are in.
        op: the same call of this rank, None where the recorder shows only what is before it.
        before: work that its device has begun and not ended, oldest first.
    """

    rank: int
    wait: Wait
    op: Op | None
    before: tuple[Op, ...]

    def sentence(self, now_ns: int) -> str:
        """What stalls it, as far as the recorder shows."""
        ago = ""
        if self.op is not None:
            ago = f", enqueued {max(0, now_ns - self.op.enqueue_ns) / 1e9:.1f} s ago"
        cause = "something ahead of it on the stream does not finish"
        if self.before:
            for_s = for_seconds(max(0, now_ns - self.before[0].start_ns) / 1e9)
            cause = f"{self.before[0].name} has been running there{for_s}"
        return f"its device has not begun {self.wait.what}{ago}: {cause}"


def device_stalls(waits: Sequence[Wait], views: Mapping[int, RankView]) -> tuple[DeviceStall, ...]:
    """Ranks that have called a collective which no rank is late to call, and whose device has not
    begun it while another rank's has.

    A rank whose device is in another transfer meanwhile waits there for its peers, and is left
    out.
    """
    stalls: dict[int, DeviceStall] = {}
    for wait in waits:
        if wait.exact and not wait.missing and wait.group is not None:
            for stall in _of_one(wait, views):
                stalls.setdefault(stall.rank, stall)
    return tuple(stalls[rank] for rank in sorted(stalls))


def _of_one(wait: Wait, views: Mapping[int, RankView]) -> Iterator[DeviceStall]:
    assert wait.group is not None
    members = wait.group.members
    if all(members[rank].ops[wait.seq].queued for rank in wait.waiters):
        return
    for rank, member in members.items():
        view = views[rank]
        op = member.ops.get(wait.seq)
        if view.hook is None or not view.alive:
            continue
        begun = _begun(view.hook)
        if any(other.communicates for other in begun):
            continue
        # What is queued behind work that has begun is not shown.
        unseen = op is None and bool(begun) and member.newest >= wait.seq
        if unseen or (op is not None and op.queued and op.end_ns == 0):
            yield DeviceStall(rank, wait, op, begun)


def _begun(hook: HookState) -> tuple[Op, ...]:
    """What the device works on, oldest first."""
    return tuple(op for op in hook.in_flight if op.enqueue_ns and not op.queued)


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A collective that has ended on others of its group, and not on this rank.

    Args:
        rank: which; group: of the collective; op: it; finished: the others.
    """

    rank: int
    group: Group
    op: Op
    finished: RankSet

    def sentence(self) -> str:
        """`its device has not finished all_reduce #5 of the default group, which rank 1 has`."""
        verb = "has" if len(self.finished) == 1 else "have"
        who = "its device" if self.op.enqueue_ns else "it"
        return (
            f"{who} has not finished {self.group.call(self.op)}, which {of_ranks(self.finished)} "
            f"{verb}"
        )


def unfinished_here(
    groups: Sequence[Group], views: Mapping[int, RankView], *, at_once: bool
) -> tuple[Unfinished, ...]:
    """Ranks on which a collective has not ended that others of the group have done with.

    All members have called it, and where it needs all of them, all devices have begun it: what is
    left of it is this rank's own. Of a collective that needs not all, such as a broadcast, that
    follows only where it is the oldest of all that the rank has not finished, and most have. Ranks
    are named only where they are no more than the others.

    Args:
        groups: all of the job; views: of all ranks.
        at_once: all ranks were looked at after the job had stopped, so that no look is too early.
    """
    oldest: dict[int, Unfinished] = {}
    for group in groups:
        for each in _in_group(group, views, at_once=at_once):
            known = oldest.get(each.rank)
            if known is None or _since(each.op) < _since(known.op):
                oldest[each.rank] = each
    return tuple(oldest[rank] for rank in sorted(oldest))


def _in_group(
    group: Group, views: Mapping[int, RankView], *, at_once: bool
) -> Iterator[Unfinished]:
    open_here = {
        rank: member.stuck[0]
        for rank, member in group.members.items()
        if member.stuck and not member.stuck[0].failed and views[rank].alive
    }
    known = RankSet.of(group.members)
    finishers = {
        seq: RankSet.of(rank for rank, member in group.members.items() if member.has_finished(seq))
        for seq in {op.seq for op in open_here.values()}
        if not group.behind(seq) & known
    }
    for rank, op in open_here.items():
        finished = finishers.get(op.seq, RankSet())
        behind = known - finished
        needs_all = op.name.partition(" ")[0] in _NEEDS_ALL
        # Of those of which nothing is known, all may have finished.
        unknown = group.size - len(known)
        if needs_all:
            enough = len(finished) + unknown >= len(behind)
        else:
            enough = len(finished) > len(behind) + unknown
        hook = views[rank].hook
        if not finished or not enough or hook is None:
            continue
        settled = at_once and op.enqueue_ns > 0
        if not settled and _joined_s(group, views, op.seq) < _SURE_S:
            continue
        if needs_all or _is_oldest(op, hook):
            yield Unfinished(rank, group, op, finished)


def _joined_s(group: Group, views: Mapping[int, RankView], seq: int) -> float:
    """For how long, at least, all members have been in a collective or past it, s; 0: not shown."""
    ages_s = []
    for rank, member in group.members.items():
        hook = views[rank].hook
        # One that no longer shows it had joined it before it called the next that it shows.
        shown = min((number for number in member.ops if number >= seq), default=None)
        if hook is None or shown is None:
            return 0.0
        ages_s.append((hook.now_ns - member.ops[shown].start_ns) / 1e9)
    return min(ages_s, default=0.0)


def _since(op: Op) -> int:
    return op.enqueue_ns or op.start_ns


def _is_oldest(op: Op, hook: HookState) -> bool:
    return all(_since(op) <= _since(other) for other in hook.in_flight if other.communicates)


@dataclass(frozen=True, slots=True)
class Lag:
    """A rank that has called less than the others of its group.

    Args:
        rank: which; group: where it lags most.
        newest: the number of its last call there; ahead: who has called more.
        behind: how many calls it lags behind them.
    """

    rank: int
    group: Group
    newest: int
    ahead: RankSet
    behind: int

    def sentence(self) -> str:
        """`has called no more than #5 of the default group, where ranks 0-1,3 have called #9`."""
        verb = "has" if len(self.ahead) == 1 else "have"
        return (
            f"has called no more than #{self.newest} of {self.group.title}, where "
            f"{of_ranks(self.ahead)} {verb} called #{self.newest + self.behind}"
        )


def lagging(waits: Sequence[Wait], views: Mapping[int, RankView]) -> tuple[Lag, ...]:
    """Where the chains of waiting end in ranks that have called less than the others: those that
    lag most.

    What a rank has queued on its device is no wait of its host: the rank that others wait for has
    stopped calling for a reason of its own. It counts only where most of the group are ahead, and
    equally far, so that no rank merely runs a little behind.

    Args:
        waits: all of the job; views: of all ranks.
    """
    ends = [end for end in sinks([wait for wait in waits if wait.missing]) if len(end) == 1]
    # Of a group that is not known in full, it may wait for somebody else.
    unsure = RankSet.of(
        rank
        for w in waits
        if not w.exact or (w.group and not w.group.complete)
        for rank in w.waiters
    )
    lags = []
    for rank in (next(iter(end)) for end in ends if not end & unsure):
        view = views.get(rank)
        if view is None:
            continue
        if view.alive and view.hook is not None and any(o.enqueue_ns for o in view.hook.in_flight):
            most = max(_lags(rank, waits), key=lambda lag: lag.behind, default=None)
            lags += [] if most is None else [most]
    longest = max((lag.behind for lag in lags), default=0)
    return tuple(lag for lag in lags if lag.behind == longest)


def _lags(rank: int, waits: Sequence[Wait]) -> list[Lag]:
    lags = []
    groups = {w.group.key: w.group for w in waits if w.group is not None and rank in w.missing}
    for group in groups.values():
        member = group.members.get(rank)
        if member is None or member.newest < 0:
            continue
        newest = {r: m.newest for r, m in group.members.items() if r != rank}
        front = max(newest.values(), default=-1)
        ahead = RankSet.of(r for r, number in newest.items() if number == front)
        if front > member.newest and 2 * len(ahead) > len(group.members):
            lags.append(Lag(rank, group, member.newest, ahead, front - member.newest))
    return lags
