"""Where the rendezvous store is: known only once all nodes have said it."""

from __future__ import annotations

import pytest

from relkit.launch.elastic.outside_store import StorePlace
from relkit.launch.job.attempt import Attempt
from relkit.launch.job.exchange import ExchangeBroken, MemoryMailbox


def places(*holds_store: bool, nodes: int = 0) -> list[StorePlace]:
    """Of nodes that share their notes; further ones have not said anything."""
    notes: dict[str, bytes] = {}
    nodes = nodes or len(holds_store)
    return [
        StorePlace(MemoryMailbox(node, nodes, notes), holds_store=holds)
        for node, holds in enumerate(holds_store)
    ]


def test_it_is_outside_where_no_node_hosts_it() -> None:
    first, second = places(False, False)
    # Node 0 says it, once it has looked.
    assert [second.is_outside, first.is_outside, second.is_outside] == [False, True, True]


@pytest.mark.parametrize("host", [0, 1, 2])
def test_it_is_in_the_job_where_one_does(host: int) -> None:
    known = places(*(node == host for node in range(3)))
    for _ in range(2):
        assert [each.is_outside for each in known] == [False] * 3


def test_what_a_node_has_not_said_is_no_proof() -> None:
    first, second = places(False, False, nodes=3)
    assert not first.is_outside
    assert not second.is_outside


def test_without_links_nothing_is_known() -> None:
    class Broken(MemoryMailbox):
        def put(self, key: str, data: bytes) -> None:
            raise ExchangeBroken("no links")

        def get(self, key: str) -> bytes | None:
            raise ExchangeBroken("no links")

    class ReadOnly(Broken):
        def put(self, key: str, data: bytes) -> None:
            pass

    for notes in (Broken(0, 2), ReadOnly(0, 2), ReadOnly(1, 2)):
        place = StorePlace(notes, holds_store=False)
        assert not place.is_outside
        assert not place.is_outside


def test_before_the_first_attempt_and_in_a_job_of_one_node() -> None:
    assert not StorePlace.unknown().is_outside
    assert StorePlace.of(Attempt("job")).is_outside
    assert not StorePlace.of(Attempt("job", holds_store=True)).is_outside
