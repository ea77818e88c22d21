"""One node's part: which pairs there are, and what it measures over real sockets."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from relkit.launch.hang.links.node_part import NodePart, pairs_of
from relkit.launch.hang.links.notes import Ask, Call
from relkit.launch.job.exchange import LauncherAddress
from tests import ports
from tests.patience import PATIENCE

pytestmark = pytest.mark.timeout(60 * PATIENCE)
ASK = Ask((4, 9), bytes(16))


def point(key: bytes = b"k" * 32) -> LauncherAddress:
    return LauncherAddress("127.0.0.1", key)


@pytest.fixture
def both() -> Iterator[tuple[NodePart, NodePart]]:
    low, high = (NodePart(ASK, node, point(), 60) for node in ASK.nodes)
    with closing(low), closing(high):
        yield low, high


@pytest.mark.parametrize("count", range(2, 9))
def test_each_pair_once_and_no_node_twice_at_a_time(count: int) -> None:
    nodes = tuple(range(10, 10 + count))
    pairs = pairs_of(nodes)
    assert len({(low, high) for low, high, _ in pairs}) == len(pairs) == count * (count - 1) // 2
    assert all(low < high for low, high, _ in pairs)
    for slot in {slot for *_, slot in pairs}:
        busy = [node for low, high, s in pairs if s == slot for node in (low, high)]
        assert len(busy) == len(set(busy))


@pytest.mark.parametrize("turn", [0, 1])
def test_a_pair_is_measured_from_either_end(both: tuple[NodePart, NodePart], turn: int) -> None:
    accepting = both[turn]
    call = Call("127.0.0.1", accepting.listening().ports[0], 0)
    with ThreadPoolExecutor(2) as pool:
        told = list(pool.map(lambda part: part.measure({0: call}, turn), both))
    assert told[turn] == {}
    result = told[1 - turn][0]
    assert result.failure == ""
    assert result.mb_per_s > 0
    assert result.round_trip_ms > 0


def test_where_nobody_listens_is_cut(both: tuple[NodePart, NodePart]) -> None:
    result = both[1].measure({0: Call("127.0.0.1", ports.free_port(), 0)}, 0)[0]
    assert (result.mb_per_s, result.is_cut) == (0.0, True)
    assert "refused" in result.failure


def test_one_with_another_key_is_refused_and_nothing_is_said_of_the_link(
    both: tuple[NodePart, NodePart],
) -> None:
    call = Call("127.0.0.1", both[0].listening().ports[0], 0)
    with closing(NodePart(ASK, 9, point(b"other" * 8), 60)) as stranger:
        result = stranger.measure({0: call}, 0)[0]
    assert result.failure
    assert not result.is_cut


def test_pairs_of_others_are_none_of_its_business(both: tuple[NodePart, NodePart]) -> None:
    assert both[0].measure({5: Call("127.0.0.1", 9, 0)}, 1) == {}


def test_it_listens_on_the_jobs_address_only_and_no_longer_than_needed() -> None:
    part = NodePart(Ask((0, 1, 2), bytes(16)), 1, point(), 60)
    listeners = list(part._listeners.values())
    assert [each.address for each in listeners] == ["127.0.0.1", "127.0.0.1"]
    part.close()
    assert all(each.over for each in listeners)
