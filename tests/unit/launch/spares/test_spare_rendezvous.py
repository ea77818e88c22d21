"""Real rendezvous of torch's, with spares: who steps in, when, and how it ends."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
from torch._C._distributed_c10d import TCPStore
from torch.distributed.elastic.rendezvous.api import RendezvousGracefulExitError

from relkit.launch.spares.dead_member import has_lost_a_member, look_at
from relkit.launch.spares.first_exchange import MeetingBroken
from relkit.launch.spares.settings import NoReplacement, SpareSettings
from relkit.launch.spares.spare_rendezvous import SpareRendezvous
from tests.patience import PATIENCE
from tests.unit.launch.spares.job_of_threads import HEARTBEAT_S, LIMIT_S, Job, Node
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(90 * PATIENCE)


def test_a_spare_takes_the_place_of_a_node_that_leaves(a_job: Callable[..., Job]) -> None:
    job = a_job()
    one, two = job.add("a", "b")
    assert job.meet([one, two]) == {(0, 2), (1, 2)}
    spare, future = job.spare("c")
    assert not one.waits_to_meet_again()
    one.restarts = 1
    two.leave("it is slow")
    eventually(one.waits_to_meet_again, lambda: str(spare.log))
    assert job.meet([one]) | {future.result(LIMIT_S)} == {(0, 2), (1, 2)}
    assert "a spare: it waits to take the place of any of the job's 2 nodes (a, b)" in spare.log[0]
    assert spare.log[1:] == [
        "this node (c) steps in: the job has lost node b (it is slow)",
        "node c takes the place of node b (it is slow)",
    ]
    assert one.log == ["node c takes the place of node b (it is slow)"]
    # A node that comes later learns how many restarts are used.
    assert spare.meeting.membership.restarts == 1


def test_a_member_that_is_late_is_not_replaced(a_job: Callable[..., Job]) -> None:
    job = a_job()
    one, two = job.add("a", "b")
    job.meet([one, two])
    spare, future = job.spare("c")
    first = job.meets([one])
    # It has left the meeting, and the other one, which lives, has not yet.
    eventually(two.waits_to_meet_again, lambda: str(one.log))
    assert not two.meeting.grows
    assert not future.done()
    assert {*job.meet([two]), first[0].result(LIMIT_S)} == {(0, 2), (1, 2)}
    assert spare.meeting.waits_as_spare
    assert not future.done()


def test_who_is_asked_to_end_while_it_waits_leaves_at_once(a_job: Callable[..., Job]) -> None:
    job = a_job((3, 3))
    one, two, three = job.add("a", "b", "c")
    job.meet([one, two, three])
    three.leave("it is slow")
    (first,), (second,) = job.meets([one]), job.meets([two])
    eventually(lambda: two.log and one.log, lambda: str(one.log))
    assert two.meeting.stop("its launcher got SIGTERM")
    # As the launcher does in any case.
    two.leave("its launcher got SIGTERM")
    with pytest.raises(RendezvousGracefulExitError):
        second.result(LIMIT_S)
    eventually(
        lambda: set(one.meeting.membership.lost) == {"b", "c"}, lambda: str(one.meeting.membership)
    )
    assert one.meeting.membership.lost["b"] == "its launcher got SIGTERM"
    assert {*job.meet(job.add("d", "e")), first.result(LIMIT_S)} == {(0, 3), (1, 3), (2, 3)}


def test_a_node_that_dies_is_replaced_within_seconds(a_job: Callable[..., Job]) -> None:
    job = a_job()
    one, two = job.add("a", "b")
    job.meet([one, two])
    spare, future = job.spare("c")
    two.handler._stop_heartbeats()
    died_s = time.monotonic()
    eventually(one.waits_to_meet_again, lambda: str(spare.log))
    # torch would have seen it ten minutes later.
    assert time.monotonic() - died_s < 30 * PATIENCE
    assert job.meet([one]) | {future.result(LIMIT_S)} == {(0, 2), (1, 2)}
    assert one.log == ["node c takes the place of node b (no sign of life for 4 s)"]
    # It lives after all, and is a spare now.
    job.meets([two])
    eventually(lambda: two.meeting.waits_as_spare, lambda: str(two.log))


@pytest.mark.parametrize("role_of_lost", ["first", "last"])
def test_a_node_that_is_lost_just_after_the_meeting_is_replaced(
    a_job: Callable[..., Job], role_of_lost: str
) -> None:
    """All have met, and one of them is lost before it says who its workers are."""
    job = a_job((3, 3))
    nodes = job.add("a", "b", "c")
    lost = nodes.pop(0 if role_of_lost == "first" else 2)
    lost.meeting._is_host, nodes[0].meeting._is_host = False, True

    def is_cut_off() -> None:
        lost.handler._stop_heartbeats()
        raise ConnectionError

    lost.handler._get_store = is_cut_off
    met = [*job.meets([lost]), *job.meets(nodes)]
    eventually(lambda: lost.meeting._is_idle.is_set() and met[0].done(), lambda: str(lost.log))
    spare, replaced = job.spare("d")
    for node, future in zip(nodes, met[1:], strict=True):
        with pytest.raises(MeetingBroken):
            say_who(node, *future.result(LIMIT_S))
    assert job.meet(nodes) | {replaced.result(LIMIT_S)} == {(0, 3), (1, 3), (2, 3)}
    why = f"node {lost.name} (no sign of life for {3 * HEARTBEAT_S + 1:g} s)"
    assert f"this node (d) steps in: the job has lost {why}" in spare.log
    assert [line for node in nodes for line in node.log] == 2 * [f"node d takes the place of {why}"]


def say_who(node: Node, rank: int, world_size: int) -> None:
    """As the agent does once its node has met: say who its workers are, hear it of the others."""
    store = node.meeting.first_exchange(node.handler._wrap_store(node.handler._store))
    store.set(f"who/{rank}", b"")
    store.multi_get([f"who/{each}" for each in range(world_size)])


def test_one_of_two_spares_steps_in(a_job: Callable[..., Job]) -> None:
    job = a_job()
    one, two = job.add("a", "b")
    job.meet([one, two])
    spares = [job.spare("c"), job.spare("d")]
    two.leave("it is slow")
    eventually(one.waits_to_meet_again, lambda: str(one.log))
    job.meet([one])
    eventually(lambda: sum(future.done() for _, future in spares) == 1, lambda: str(one.log))
    (waits,) = (node for node, future in spares if not future.done())
    assert waits.meeting.waits_as_spare
    assert all("steps in" not in line for line in waits.log)


def test_a_spare_that_dies_while_it_steps_in_is_replaced_as_well(
    a_job: Callable[..., Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = a_job()
    one, two = job.add("a", "b")
    job.meet([one, two])
    spares = dict([job.spare("c"), job.spare("d")])
    dies, lives = sorted(spares, key=lambda node: repr(node.handler._this_node))

    def die(_rendezvous: object) -> str:
        raise RuntimeError("it dies on the list of those who wait")

    monkeypatch.setattr(dies.meeting, "_why_late", die)
    two.leave("it is slow")
    with pytest.raises(RuntimeError, match="it dies"):
        spares[dies].result(LIMIT_S)
    assert job.meet([one]) | {spares[lives].result(LIMIT_S)} == {(0, 2), (1, 2)}


def test_a_spare_ends_with_the_job(a_job: Callable[..., Job]) -> None:
    job = a_job()
    one, two = job.add("a", "b")
    job.meet([one, two])
    spare, future = job.spare("c")
    assert one.handler.shutdown()
    with pytest.raises(RendezvousGracefulExitError):
        future.result(LIMIT_S)
    assert spare.log[-1] == "the job has ended, and with it this spare (c)"


def test_a_node_that_was_replaced_and_comes_back_after_the_end_was_a_spare(
    a_job: Callable[..., Job],
) -> None:
    job = a_job()
    one, two = job.add("a", "b")
    job.meet([one, two])
    _, future = job.spare("c")
    two.handler._stop_heartbeats()
    assert job.meet([one]) | {future.result(LIMIT_S)} == {(0, 2), (1, 2)}
    one.handler.shutdown()
    (late,) = job.meets([two])
    with pytest.raises(RendezvousGracefulExitError):
        late.result(LIMIT_S)
    assert two.log == ["the job has ended, and with it this spare (b)"]


def test_a_spare_that_steps_in_ends_with_the_job_as_well(a_job: Callable[..., Job]) -> None:
    job = a_job()
    one, two = job.add("a", "b")
    job.meet([one, two])
    spare, future = job.spare("c")
    two.leave("it is slow")
    eventually(one.waits_to_meet_again, lambda: str(spare.log))
    # Its workers have failed, and no restart is left.
    assert one.handler.shutdown()
    with pytest.raises(RendezvousGracefulExitError):
        future.result(LIMIT_S)
    assert spare.log[-1] == "the job has ended, and with it this spare (c)"
    eventually(lambda: not one.waits_to_meet_again(), lambda: str(spare.log))


def test_nobody_comes(a_job: Callable[..., Job]) -> None:
    job = a_job((3, 3), replacement_timeout_s=4.0)
    one, two, three = job.add("a", "b", "c")
    job.meet([one, two, three])
    three.leave("its NIC is slow")
    futures = job.meets([one, two])
    for future in futures:
        with pytest.raises(NoReplacement, match=r"node c \(its NIC is slow\): .* within 4 s"):
            future.result(LIMIT_S)
        # The others see that it is over, before their own time is.
        one.handler.shutdown()
    assert any("it waits 4 s for a new launcher" in line for line in one.log), one.log


def test_a_new_launcher_is_in_time(a_job: Callable[..., Job]) -> None:
    job = a_job((2, 2), replacement_timeout_s=30.0 * PATIENCE)
    one, two = job.add("a", "b")
    job.meet([one, two])
    two.leave("it is broken")
    (first,) = job.meets([one])
    eventually(lambda: any("it waits" in line for line in one.log), lambda: str(one.log))
    assert job.meet(job.add("c")) | {first.result(LIMIT_S)} == {(0, 2), (1, 2)}
    assert one.log[-1] == "node c takes the place of node b (it is broken)"


def test_the_wait_for_a_new_launcher_begins_with_the_loss(a_job: Callable[..., Job]) -> None:
    job = a_job((2, 2), replacement_timeout_s=300.0)
    one, two = job.add("a", "b")
    job.meet([one, two])
    (first,) = job.meets([one])
    eventually(two.waits_to_meet_again, lambda: str(one.log))
    looks: list[float] = []

    def much_later() -> float:
        looks.append(time.monotonic() + 1000.0)
        return looks[-1]

    one.meeting._clock = much_later
    eventually(lambda: len(looks) > 5, "it looks at no clock")
    # The other one lives, and may take its time to stop its workers.
    assert not first.done()
    two.leave("it is broken")
    eventually(lambda: any("it waits 300 s" in line for line in one.log), lambda: str(one.log))
    assert job.meet(job.add("c")) | {first.result(LIMIT_S)} == {(0, 2), (1, 2)}


def test_an_elastic_job_goes_on_smaller_at_once_and_grows(a_job: Callable[..., Job]) -> None:
    job = a_job((1, 2))
    one, two = job.add("a", "b")
    job.meet([one, two])
    two.leave("it is broken")
    began_s = time.monotonic()
    assert job.meet([one]) == {(0, 1)}
    # torch's last call is 30 s.
    assert time.monotonic() - began_s < 20 * PATIENCE
    assert one.log == ["the job goes on without node b (it is broken)"]
    new = job.add("c")
    (future,) = job.meets(new)
    eventually(one.waits_to_meet_again, lambda: str(new[0].log))
    assert one.meeting.grows
    assert job.meet([one]) | {future.result(LIMIT_S)} == {(0, 2), (1, 2)}
    assert one.log[-1] == "node c joins the job"


def test_a_job_of_whole_units_grows_and_shrinks_by_them(a_job: Callable[..., Job]) -> None:
    job = a_job((2, 4), unit=2)
    # torch would take all three, once its last call is over.
    nodes = job.add("a", "b", "c")
    futures = job.meets(nodes)
    eventually(lambda: sum(f.done() for f in futures) == 2, lambda: str([n.log for n in nodes]))
    (waits,) = (n for n, f in zip(nodes, futures, strict=True) if not f.done())
    eventually(lambda: waits.meeting.waits_as_spare, lambda: str(waits.log))
    assert waits.log[-1] == (
        f"this node ({waits.name}) is a spare: the job has 2 nodes and grows by 2 at a time"
        " (--node-unit)"
    )
    members = [node for node in nodes if node is not waits]
    assert not any(node.waits_to_meet_again() for node in members)
    (four,) = job.add("d")
    (late,) = job.meets([four])
    eventually(members[0].waits_to_meet_again, lambda: str(four.log))
    came = [next(f for f in futures if not f.done()), late]
    met = job.meet(members) | {future.result(LIMIT_S) for future in came}
    assert met == {(rank, 4) for rank in range(4)}
    gone = members.pop()
    gone.leave("it is broken")
    left = [node for node in (*nodes, four) if node is not gone]
    after = job.meets(left)
    eventually(lambda: sum(f.done() for f in after) == 2, lambda: str([n.log for n in left]))
    (waits,) = (n for n, f in zip(left, after, strict=True) if not f.done())
    eventually(lambda: waits.meeting.waits_as_spare, lambda: str(waits.log))
    said = next(n for n in left if n is not waits).log
    why = "it waits: 2 nodes are a multiple of --node-unit 2"
    assert set(said[-2:]) == {
        f"the job goes on without node {gone.name} (it is broken)",
        f"the job goes on without node {waits.name} ({why})",
    }


def test_whether_a_node_that_leaves_may_be_replaced(a_job: Callable[..., Job]) -> None:
    job = a_job()
    one, two = job.add("a", "b")
    job.meet([one, two])
    # Spares may be on their way when the nodes meet for the first time, and later they are not.
    assert one.may_replace()
    job.meet([one, two])
    assert not one.may_replace()
    job.spare("c")
    one.handler._state_holder._last_sync_time = -1
    one.handler.num_nodes_waiting()
    assert one.may_replace()
    waits = a_job((2, 2), replacement_timeout_s=5.0)
    both = waits.add("a", "b")
    waits.meet(both)
    waits.meet(both)
    assert both[0].may_replace()


def test_a_node_that_trains_sees_soon_that_another_waits(a_job: Callable[..., Job]) -> None:
    (node,) = a_job().add("a")
    assert node.handler._state_holder._cache_duration == HEARTBEAT_S / 4


def test_without_being_asked_for_all_is_as_in_torch() -> None:
    server = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    node = Node(server.port, "a", SpareSettings(), (1, 1))
    assert node.handler.next_rendezvous().world_size == 1
    assert not hasattr(node.handler._state_holder.state, "relkit_membership")
    assert not node.meeting.may_replace
    node.handler.shutdown()


def test_a_static_rendezvous_knows_no_spares() -> None:
    class Static:
        def get_backend(self) -> str:
            return "static"

    log: list[str] = []

    def attach(settings: SpareSettings) -> None:
        SpareRendezvous(settings, log.append, "a").attach(Static(), lambda: 0)  # type: ignore[arg-type]

    attach(SpareSettings(1, is_on=True))
    assert log == ["rendezvous backend static does not support spares"]
    attach(SpareSettings(node_unit=2, is_on=True))
    assert log.pop() == "rendezvous backend static does not support node units"
    # An elastic job of that kind has not asked for any.
    attach(SpareSettings(is_on=True))
    assert len(log) == 1


def test_a_node_that_is_to_be_given_up_sees_the_loss_of_another(a_job: Callable[..., Job]) -> None:
    # Without a spare, which could see the loss before this node does.
    job = a_job(replacement_timeout_s=60.0)
    job.settings = replace(job.settings, node_restarts=1)
    one, two = job.add("a", "b")
    job.meet([one, two])
    one.handler._stop_heartbeats()
    why = two.meeting.failed(1.0)
    assert why == "its workers failed first 1 times in a row (--node-restarts 1)"
    look = partial(look_at, two.handler)
    assert look()[1].keys() == {repr(one.handler._this_node)}
    assert has_lost_a_member(look, two.meeting.silence_limit_s)
