"""Sends and receives that ranks are in, and whether the peer has made the other half of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from relkit.hang.groups import Group
from relkit.hang.model import RankView
from relkit.hang.words import transfer
from relkit.hook.model import HookState, Op, OpKind, TransferCount


@dataclass(frozen=True, slots=True)
class Transfer:
    """One send or receive in flight.

    Args:
        rank: who is in it; peer: the other end; both global.
        op: the operation; its `seq` counts those of the same group, direction, peer and tag.
        what: `recv #5 from rank 1 of the default group (4 KiB, tag 7)`.
        called: how many of the other half the peer has called; None where that is not known.
        peer_size_bytes: of the other half of this one; None where that is not known.
        behind: the peer has called the other half, and its device is in something else before it.
    """

    rank: int
    peer: int
    op: Op
    what: str
    called: int | None
    peer_size_bytes: int | None
    behind: bool = False

    @property
    def receives(self) -> bool:
        """The direction, as seen from `rank`."""
        return self.op.name == "recv"

    @property
    def missing(self) -> bool:
        """The peer has not come to the other half, as far as is known."""
        return self.behind or self.called is None or self.called <= self.op.seq

    @property
    def half(self) -> str:
        """What the peer has to call: `send to rank 0`."""
        return f"send to rank {self.rank}" if self.receives else f"recv from rank {self.rank}"

    @property
    def progress(self) -> str:
        """`of its sends to rank 0 it has called 6`, about the peer; "" where that says nothing."""
        if self.called is None or self.behind:
            return ""
        halves = "sends to" if self.receives else "receives from"
        return f"of its {halves} rank {self.rank} it has called {self.called}"


def transfers_of(views: Mapping[int, RankView], groups: Sequence[Group]) -> tuple[Transfer, ...]:
    """The numbered sends and receives that ranks are in, by rank; not what is only queued."""
    of_index = _by_index(groups)
    transfers = []
    for rank, view in sorted(views.items()):
        for op in view.hook.in_flight if view.hook else ():
            group = of_index.get((rank, op.communicator))
            if op.kind is not OpKind.P2P or op.queued or op.seq < 0 or group is None:
                continue
            peer = group.rank_at(op.peer)
            if peer is not None and op.name in ("send", "recv"):
                transfers.append(_transfer(views, group, rank, peer, op))
    return tuple(transfers)


def posted_by(
    ranks: Iterable[int], views: Mapping[int, RankView], groups: Sequence[Group]
) -> tuple[Transfer, ...]:
    """The sends and receives that these ranks have called and whose end nobody has seen.

    gloo ends a process that is sent more than it receives, whatever its program waits for by then
    (third_party/gloo/gloo/transport/tcp/pair.cc, the length of a preamble).

    Args:
        ranks: whose; those of which the size is not kept are left out.
        views: of all ranks; groups: all process groups.
    """
    of_index = _by_index(groups)
    posted = []
    for rank in ranks:
        hook = views[rank].hook
        for count in hook.transfers if hook else ():
            group = of_index.get((rank, count.communicator))
            peer = group.rank_at(count.peer) if group else None
            if group is None or peer is None:
                continue
            for number in range(count.done, count.posted):
                size_bytes = count.size_bytes(number)
                if size_bytes is not None:
                    op = _op(count, number, size_bytes)
                    posted.append(_transfer(views, group, rank, peer, op))
    return tuple(posted)


def _by_index(groups: Sequence[Group]) -> Mapping[tuple[int, int], Group]:
    """By rank and the number that the group has there."""
    return {
        (rank, member.index): group for group in groups for rank, member in group.members.items()
    }


def _op(count: TransferCount, number: int, size_bytes: int) -> Op:
    name = "recv" if count.receives else "send"
    return Op(
        name, OpKind.P2P, number, count.communicator, size_bytes, 0, 0,
        peer=count.peer, tag=count.tag,
    )  # fmt: skip


def _transfer(
    views: Mapping[int, RankView], group: Group, rank: int, peer: int, op: Op
) -> Transfer:
    what = transfer(op, f"rank {peer}", group.title)
    hook = views[peer].hook if peer in views else None
    member = group.members.get(peer)
    if hook is None or member is None:
        return Transfer(rank, peer, op, what, None, None)
    place = group.members[rank].place
    half_receives = op.name == "send"
    count = _count(hook, member.index, half_receives, place, op.tag)
    called = count.posted if count else (None if hook.uncounted else 0)
    size_bytes = count.size_bytes(op.seq) if count else None
    behind = bool(op.enqueue_ns) and _is_elsewhere(hook, member.index, place, half_receives, op)
    return Transfer(rank, peer, op, what, called, size_bytes, behind)


def _count(
    hook: HookState, index: int, receives: bool, peer: int, tag: int
) -> TransferCount | None:
    wanted = (index, receives, peer, tag)
    for count in hook.transfers:
        if (count.communicator, count.receives, count.peer, count.tag) == wanted:
            return count
    return None


def _is_elsewhere(hook: HookState, index: int, place: int, receives: bool, mine: Op) -> bool:
    """A peer's device has begun communication, but neither this half nor one together with it."""
    begun = [op for op in hook.in_flight if op.communicates and op.enqueue_ns and not op.queued]
    count = _count(hook, index, receives, place, mine.tag)
    if not begun or count is None or count.done > mine.seq:
        return False
    name = "recv" if receives else "send"
    together = any(
        op.communicator == index and op.kind is OpKind.P2P
        and (op.name, op.peer, op.seq) == (name, place, mine.seq)
        for op in begun
    )  # fmt: skip
    # Of a group of transfers only the first is shown: its device is in all of them.
    return not together and all(_alone(op, hook) for op in begun)


def _alone(op: Op, hook: HookState) -> bool:
    """No other transfer of its group was called after it and is open, so that it is no batch."""
    if op.kind is not OpKind.P2P:
        return True
    return sum(count.posted > count.done for count in hook.transfers) <= 1 or any(
        other.queued and other.kind is OpKind.P2P for other in hook.in_flight
    )
