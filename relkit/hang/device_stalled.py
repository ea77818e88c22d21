"""Ranks that made the call the others are in, and whose device has not begun it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from relkit.hang.model import RankView
from relkit.hang.waits import Wait
from relkit.hang.words import for_seconds
from relkit.hook.model import HookState, Op


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
