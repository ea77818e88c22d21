"""Sends and receives on devices: a peer that has called the other half may not have come to it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from relkit.hang.attribute import attribute
from relkit.hang.groups import groups_of
from relkit.hang.model import Category, RankView
from relkit.hang.transfers import Transfer, transfers_of
from relkit.hook.model import Communicator, HookState, Op, OpKind, TransferCount
from tests.unit.hang.hang_builders import NOW, SECOND, job, named, op, state, view

WORLD, KIB = 3, 1024
SEND = TransferCount(0, False, 0, 0, posted=6, done=5, sizes=(KIB,) * 4)
RECV = TransferCount(0, True, 2, 0, posted=6, done=5, sizes=(KIB,) * 4)


def on_device(name: str, seq: int, peer: int, *, queued: bool = False) -> Op:
    kind = OpKind.COLLECTIVE if peer < 0 else OpKind.P2P
    start_ns = NOW - 11 * SECOND
    return Op(
        name, kind, seq, 0, KIB, 7, start_ns, peer=peer, queued=queued,
        enqueue_ns=start_ns - (0 if queued else 500),
    )  # fmt: skip


def hook(rank: int, flying: tuple[Op, ...], *counts: TransferCount) -> HookState:
    made = state(rank, WORLD, [], flying, [Communicator(0, rank, WORLD, "0")])
    return replace(made, transfers=counts)


def seen(mine: Op, peers: HookState) -> list[RankView]:
    """Rank 0 is in this; of rank 1 that is known, and rank 2 waits for rank 1 as well."""
    counts = (TransferCount(0, True, 1, 0, mine.seq + 1, mine.seq, (KIB,)),)
    other = TransferCount(0, False, 1, 0, 6, 6, (KIB,))
    hooks = [hook(0, (mine,), *counts), peers, hook(2, (), other)]
    return [view(rank, WORLD, hook=each) for rank, each in enumerate(hooks)]


def transfer(mine: Op, peers: HookState) -> Transfer:
    views = seen(mine, peers)
    (found, *_) = transfers_of({each.rank: each for each in views}, groups_of(job(views)))
    return found


IN_RECV = on_device("recv", 5, 1)
REDUCE = on_device("allreduce", 3, -1)


def test_a_peer_whose_device_is_in_a_collective_has_not_come_to_its_send() -> None:
    found = transfer(IN_RECV, hook(1, (REDUCE,), SEND))
    assert (found.called, found.behind, found.missing) == (6, True, True)


@pytest.mark.parametrize(
    ("flying", "counts"),
    [
        # It is in the other half itself.
        ((on_device("send", 5, 0),), (SEND,)),
        # Its device has begun nothing.
        ((replace(REDUCE, queued=True),), (SEND,)),
        # Its half has ended.
        ((REDUCE,), (replace(SEND, done=6),)),
        # A batch, of which the recorder shows the first part only.
        ((on_device("recv", 5, 2),), (SEND, RECV)),
        # What runs on the host holds no device up.
        ((op(seq=3, age_s=11.0, in_flight=True),), (SEND,)),
    ],
)
def test_a_peer_that_has_come_to_it(
    flying: tuple[Op, ...], counts: tuple[TransferCount, ...]
) -> None:
    found = transfer(IN_RECV, hook(1, flying, *counts))
    assert (found.called, found.behind, found.missing) == (6, False, False)


def test_a_peer_whose_device_is_in_another_transfer_ahead_of_it() -> None:
    flying = (on_device("recv", 5, 2), on_device("send", 5, 0, queued=True))
    assert transfer(IN_RECV, hook(1, flying, SEND, RECV)).behind


def test_a_receive_that_the_host_waits_for_is_judged_by_what_was_called() -> None:
    found = transfer(replace(IN_RECV, enqueue_ns=0), hook(1, (REDUCE,), SEND))
    assert (found.behind, found.missing) == (False, False)


def test_the_rank_that_its_device_waits_for_is_named_and_not_the_one_in_between() -> None:
    """0 waits in recv for 1, whose device is in a collective that 2 has not called."""
    verdict = attribute(job(seen(IN_RECV, hook(1, (REDUCE,), SEND))))
    assert named(verdict) == [(2, Category.BLOCKED)]
