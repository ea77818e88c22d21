"""Sends and receives in flight: direction, peer, size, tag, and their place in the order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from relkit.hang.groups import Group
from relkit.hang.model import RankView
from relkit.hang.transfers import Transfer, transfers_of
from relkit.hang_picture.model import TransferFact
from relkit.hang_picture.sequences import age_s, longest
from relkit.ranks import RankSet


def transfer_facts(
    views: Mapping[int, RankView], groups: Sequence[Group], culprits: RankSet
) -> list[TransferFact]:
    """One row a transfer: first those that wait for a culprit, then all whose peer has not come.

    Args:
        views: by rank; groups: of the job; culprits: the ranks at fault.
    """
    titles = {
        (rank, member.index): group.title
        for group in groups
        for rank, member in group.members.items()
    }
    transfers = sorted(
        transfers_of(views, groups),
        key=lambda t: (not (t.missing and t.peer in culprits), not t.missing, t.rank, t.op.seq),
    )
    return [_fact(each, views, titles) for each in transfers]


def _fact(
    each: Transfer, views: Mapping[int, RankView], titles: Mapping[tuple[int, int], str]
) -> TransferFact:
    return TransferFact(
        rank=each.rank,
        direction="recv" if each.receives else "send",
        peer=each.peer,
        group=titles.get((each.rank, each.op.communicator), ""),
        size_bytes=each.op.size_bytes,
        tag=each.op.tag,
        number=each.op.seq,
        in_flight_s=longest([age_s(views.get(each.rank), each.op)]),
        peer_called=each.called,
        peer_size_bytes=each.peer_size_bytes,
        missing=each.missing,
    )
