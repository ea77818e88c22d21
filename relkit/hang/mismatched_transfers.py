"""Rings of ranks that hold a send or receive, and transfers of unequal size: who deviated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from relkit.hang.finding_builder import FindingBuilder
from relkit.hang.model import Category, Culprit, RankView
from relkit.hang.past import calls_of, expected_instead, not_posted
from relkit.hang.transfers import Transfer
from relkit.hang.waits import Wait
from relkit.hang.words import size, torch_name
from relkit.hook.model import Op, OpKind
from relkit.ranks import RankSet

_CONTEXTS = (6, 32, 256)

Builders = Mapping[int, FindingBuilder]


def holds_transfer(ring: RankSet, waits: Sequence[Wait]) -> bool:
    """Some rank of the ring waits in a send or receive for another one of it."""
    return any(w.transfer is not None and w.waiters & ring and w.missing & ring for w in waits)


def strayed(
    ring: RankSet, waits: Sequence[Wait], views: Mapping[int, RankView], builders: Builders
) -> list[Culprit]:
    """The ranks of a ring that called something else than at this point of earlier steps.

    A few calls say at which point that is, unless the same calls come again within a step.
    """
    mutual = _mutual(ring, waits)
    instead: dict[int, Op] = {}
    for longest in _CONTEXTS:
        expected = {rank: expected_instead(views[rank], longest) for rank in ring}
        instead = {rank: op for rank, op in expected.items() if op is not None}
        if 0 < 2 * len(instead) <= len(ring):
            return [_astray(r, op, waits, mutual, builders[r]) for r, op in instead.items()]
    short = {rank: op for rank in ring if (op := not_posted(views[rank])) is not None}
    if 0 < 2 * len(short) <= len(ring):
        return [_astray(rank, op, waits, (), builders[rank]) for rank, op in short.items()]
    if mutual and not instead and not any(len(calls_of(views[r])) > 2 for r in ring):
        return [_inconclusive(each, builders[each.rank]) for each in mutual]
    return []


def _mutual(ring: RankSet, waits: Sequence[Wait]) -> tuple[Transfer, ...]:
    """Two ranks that both send to each other, or both receive."""
    inside = [w.transfer for w in waits if w.transfer is not None and w.missing & ring]
    of_ends: dict[tuple[int, int, bool], Transfer] = {}
    for each in inside:
        of_ends.setdefault((each.rank, each.peer, each.receives), each)
    for each in inside:
        other = of_ends.get((each.peer, each.rank, each.receives))
        if other is not None:
            return each, other
    return ()


def _on(op: Op, waits: Sequence[Wait], rank: int) -> str:
    own = next((wait for wait in waits if rank in wait.waiters), None)
    return f"and went on to {own.what}" if own else "and went on"


def _astray(
    rank: int, expected: Op, waits: Sequence[Wait], mutual: Sequence[Transfer],
    builder: FindingBuilder,
) -> Culprit:  # fmt: skip
    place = f", in {builder.activity.place}" if builder.activity.place else ""
    reasons = (f"at this point of earlier steps it called {torch_name(expected.name)}",)
    on = _on(expected, waits, rank)
    wanted = [w for w in waits if rank in w.missing and w.exact]
    if expected.kind is not OpKind.P2P:
        collectives = [w for w in wanted if w.transfer is None]
        what = collectives[0].what if collectives else torch_name(expected.name)
        return builder.culprit(Category.SKIPPED, f"skipped {what} {on}{place}", reasons)
    transfers = [w.transfer for w in wanted if w.transfer is not None]
    both = [each for each in mutual if each.rank == rank]
    if both:
        verb, theirs = ("receive", "recv from") if both[0].receives else ("send", "send to")
        sentence = (
            f"is in {both[0].what} while rank {both[0].peer} is in a {theirs} it: both {verb} "
            f"first, and neither can go on{place}"
        )
        return builder.culprit(Category.SWAPPED_TRANSFERS, sentence, reasons)
    what = transfers[0].half if transfers else torch_name(expected.name)
    if transfers:
        what += f" ({size(transfers[0].op.size_bytes)})"
    return builder.culprit(Category.SKIPPED_TRANSFER, f"skipped its {what} {on}{place}", reasons)


def _inconclusive(each: Transfer, builder: FindingBuilder) -> Culprit:
    verb = "receive" if each.receives else "send"
    sentence = (
        f"waits for rank {each.peer}, which waits for it: both {verb} first, and neither can go on"
    )
    reasons = (
        f"it is in {each.what}",
        "no earlier step shows which of the two is in the wrong order",
    )
    return builder.culprit(Category.SWAPPED_TRANSFERS, sentence, reasons, weight=0.7)


def unequal(
    transfers: Sequence[Transfer], views: Mapping[int, RankView], builders: Builders
) -> list[Culprit]:
    """Ends of a transfer whose sizes differ: the one whose size is new; both where both are."""
    culprits: dict[int, Culprit] = {}
    for each in transfers:
        theirs = each.peer_size_bytes
        if theirs is None or theirs == each.op.size_bytes:
            continue
        sizes = {each.rank: each.op.size_bytes, each.peer: theirs}
        odd = [r for r, own in sizes.items() if not _usual(views[r], own, each.op.seq)]
        for rank in odd if len(odd) == 1 else sizes:
            other = each.peer if rank == each.rank else each.rank
            receives = each.receives == (rank == each.rank)
            verb, way = ("receives", "from") if receives else ("sends", "to")
            counter = "sends" if receives else "receives"
            halves = f"{size(sizes[rank])} {way} rank {other}", size(sizes[other])
            sentence = f"{verb} {halves[0]}, which {counter} {halves[1]}"
            state = "is" if views[each.rank].alive else "was ended"
            reasons = (f"rank {each.rank} {state} in {each.what}",)
            weight = 1.0 if len(odd) == 1 else 0.7
            if rank not in culprits and rank in builders:
                culprits[rank] = builders[rank].culprit(
                    Category.UNEQUAL_TRANSFER, sentence, reasons, weight
                )
    return list(culprits.values())


def _usual(view: RankView, size_bytes: int, number: int) -> bool:
    """It has made transfers of that size before this one, which may have ended on its side."""
    return any(
        op.kind is OpKind.P2P
        and op.end_ns
        and not op.failed
        and op.size_bytes == size_bytes
        and op.seq < number
        for op in calls_of(view)
    )
