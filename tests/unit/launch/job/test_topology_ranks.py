"""Ranks by a topology file where nodes meet in torch's rendezvous: the rule, and real meetings."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch._C._distributed_c10d import TCPStore
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import (
    DynamicRendezvousHandler,
    RendezvousTimeout,
)

from relkit.errors import UsageProblem
from relkit.launch.job.bounded_calls import BoundedCalls
from relkit.launch.job.rendezvous import leave_rendezvous
from relkit.launch.job.topology_ranks import Place, TopologyRanks, decode, in_order, place_of
from relkit.launch.spares.settings import SpareSettings
from relkit.launch.spares.spare_rendezvous import SpareRendezvous
from relkit.topology import Topology, parse, rank_order
from tests.patience import PATIENCE
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(90 * PATIENCE)

# More nodes than any job here has; by switch: a c e, then b d f.
NETWORK = parse("s1 p a\ns2 p b\ns1 p c\ns2 p d\ns1 p e\ns2 p f\n")
BY_SWITCH = ("a", "c", "e", "b", "d", "f")
LIMIT = timedelta(seconds=60)
LIMIT_S = 40.0 * PATIENCE


def put_down(topology: Topology, node: str) -> Place:
    place = decode(place_of(topology, [node] * (node in topology.places), node).encode())
    assert place is not None
    return place


@given(data=st.data())
def test_any_nodes_in_any_order_of_arrival_get_the_relative_order_of_the_file(
    data: st.DataObject,
) -> None:
    switches = st.sampled_from(["s1 p1", "s2 p1", "s3 p2", "s4 p2"])
    lines = data.draw(st.lists(switches, min_size=1, max_size=12))
    network = parse("\n".join(f"{line} n{number}" for number, line in enumerate(lines)))
    whole = rank_order(network).nodes
    here = data.draw(st.lists(st.sampled_from([*whole, "x1", "x2"]), unique=True, min_size=1))
    places = {node: put_down(network, node) for node in here}
    expected = [node for node in whole if node in here]
    given_out = in_order(here, places)
    assert given_out[: len(expected)] == expected
    # Those that it does not name, as torch has them.
    assert given_out[len(expected) :] == [node for node in here if node not in whole]
    # Each switch is still one run of ranks.
    runs = [network.places[node] for node in expected]
    assert len({*runs}) == len([place for place, _ in itertools.groupby(runs)])


@pytest.mark.parametrize(
    "text", [None, 7, "", "0", "1 d", "-1 d n", "9" * 30 + " d n", "1 d a\x1b"]
)
def test_what_is_no_place(text: object) -> None:
    assert decode(text) is None
    assert in_order(["b", "a"], {"a": Place(3, "d", "a")}) == ["a", "b"]


class Node:
    """A launcher as far as its rendezvous goes."""

    def __init__(
        self, port: int, name: str, nodes: tuple[int, int], topology: Topology | None
    ) -> None:
        store = TCPStore("127.0.0.1", port, timeout=LIMIT)
        self.handler = DynamicRendezvousHandler.from_backend(
            "a job", store, C10dRendezvousBackend(store, "a job"), *nodes,
            local_addr="127.0.0.1",
            timeout=RendezvousTimeout(join=LIMIT, last_call=LIMIT),
            keep_alive_interval=1, keep_alive_max_attempt=600,
        )  # fmt: skip
        self.name, self.log = name, list[str]()
        if topology is not None:
            ranks = TopologyRanks(topology, "net.txt", put_down(topology, name), self.log.append)
            ranks.attach(self.handler)
        # In elastic jobs it is always there.
        SpareRendezvous(SpareSettings(is_on=True), self.log.append, name).attach(
            self.handler, lambda: 0
        )

    def meet(self) -> int:
        self.handler._bootstrap_store_info = self.handler._shared_tcp_store_server = None
        return int(self.handler.next_rendezvous().rank)

    def leave(self) -> None:
        leave_rendezvous(self.handler, BoundedCalls("test"))


class Job:
    """Some nodes, in threads of this process."""

    def __init__(self, nodes: tuple[int, int]) -> None:
        self.server = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self.nodes, self.all, self.pool = nodes, dict[str, Node](), ThreadPoolExecutor(8)

    def add(self, *names: str, topology: Topology | None = NETWORK) -> None:
        for name in names:
            self.all[name] = Node(self.server.port, name, self.nodes, topology)

    def meet(self, *names: str, new: str = "") -> tuple[str, ...]:
        """Have nodes come at once, in any order; their names in the order of ranks.

        Args:
            new: one of them that was not there before; the others come when it waits, as agents do.
        """
        futures = {new: self.pool.submit(self.all[new].meet)} if new else {}
        others = [name for name in names if name != new]
        if new:
            waiting = self.all[others[0]].handler.num_nodes_waiting
            eventually(lambda: waiting() == 1, f"node {new} does not wait")
        for name in random.sample(others, len(others)):
            futures[name] = self.pool.submit(self.all[name].meet)
        ranks = {future.result(LIMIT_S): name for name, future in futures.items()}
        assert sorted(ranks) == list(range(len(names)))
        return tuple(ranks[number] for number in sorted(ranks))

    def said(self, text: str) -> list[str]:
        """Who has said so."""
        return [n.name for n in self.all.values() if any(text in line for line in n.log)]


@pytest.fixture
def a_job() -> Iterator[Callable[[tuple[int, int]], Job]]:
    made: list[Job] = []

    def make(nodes: tuple[int, int]) -> Job:
        made.append(Job(nodes))
        return made[-1]

    yield make
    for job in made:
        Node(job.server.port, "end", (1, 1), None).handler.shutdown()
        job.pool.shutdown(wait=True)
        for node in job.all.values():
            node.handler._stop_heartbeats()


def test_each_meeting_has_the_order_of_the_file(a_job: Callable[..., Job]) -> None:
    job = a_job((2, 4))
    job.add("f", "b", "e", "a")
    assert job.meet("a", "b", "e", "f") == ("a", "e", "b", "f")
    assert job.said("order of nodes: a e b f; switch crossings between neighbours: 1") == ["a"]
    assert job.said("this is node 2 of 4, by net.txt") == ["b"]
    # One leaves; and another comes in its place.
    job.all["a"].leave()
    assert job.meet("b", "e", "f") == ("e", "b", "f")
    job.add("c")
    assert job.meet("b", "c", "e", "f", new="c") == ("c", "e", "b", "f")
    before = len(job.all["f"].log)
    assert job.meet("b", "c", "e", "f") == ("c", "e", "b", "f")
    assert job.all["f"].log[before:] == []


def test_nodes_that_are_not_in_the_order_are_named(a_job: Callable[..., Job]) -> None:
    job = a_job((3, 3))
    job.add("x")
    job.add("f", "c")
    assert job.meet("x", "f", "c") == ("c", "f", "x")
    assert job.said("warning: net.txt does not name node x; its ranks come last") == ["c"]


def test_files_that_differ_are_named(a_job: Callable[..., Job]) -> None:
    job = a_job((2, 2))
    job.add("a")
    job.add("b", topology=parse("s1 p z\ns1 p y\ns1 p b\n"))
    assert job.meet("a", "b") == ("a", "b")
    assert job.said("warning: the topology file of node b is not that of this node") == ["a"]


def test_a_launcher_without_the_option(a_job: Callable[..., Job]) -> None:
    job = a_job((2, 2))
    job.add("plain", topology=None)
    job.add("b")
    # Whoever completes the meeting gives out the numbers.
    names = job.meet("plain", "b")
    told = job.said("was started without --topology; its ranks come last")
    assert told + job.said("a launcher without --topology gave them out") == ["b"]
    assert (names == ("b", "plain")) == bool(told)


def test_a_rendezvous_without_such_meetings_is_refused() -> None:
    ranks = TopologyRanks(NETWORK, "net.txt", put_down(NETWORK, "a"), print)
    other = SimpleNamespace(get_backend=lambda: "etcd")
    with pytest.raises(UsageProblem, match="cannot order ranks in a rendezvous of kind etcd"):
        ranks.attach(other)  # type: ignore[arg-type]
