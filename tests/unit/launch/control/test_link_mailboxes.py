"""Mailboxes over launchers' links: each reads what any other has left, also once node 0 is lost."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from relkit.launch.control.frame import Post, Wanted, encode
from relkit.launch.control.job_links import JobLinks
from relkit.launch.control.sockets import LinkSockets
from relkit.launch.elastic import exit_barrier
from relkit.launch.job.attempt import Attempt
from relkit.launch.job.exchange import (
    MESSAGE_BYTES,
    ExchangeBroken,
    Mailbox,
    MemoryMailbox,
    wait_for_notes,
)
from relkit.net.operator_secret import derive
from tests.patience import PATIENCE
from tests.unit.launch.control.test_links import KEY, LOOPBACK, joined
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(60 * PATIENCE)


def until_reads(mailbox: Mailbox, key: str, data: bytes) -> None:
    eventually(lambda: mailbox.get(key) == data, f"{key} at node {mailbox.node}")


def test_each_reads_what_any_other_has_left_and_what_replaces_it() -> None:
    with joined(7, fan_in=2) as launchers:
        boxes = [each.mailbox("end") for each in launchers]
        others = [each.mailbox("flash") for each in launchers]
        for word in (b"first", bytes(range(256)) * (1 << 12)):
            for box in boxes:
                box.put(f"said/{box.node}", word)
            for box in boxes:
                for other in boxes:
                    until_reads(box, f"said/{other.node}", word)
        # Another purpose has names of its own.
        assert [box.get("said/0") for box in others] == [None] * 7
        assert {(box.node, box.nodes) for box in boxes} == {(node, 7) for node in range(7)}


def test_what_is_left_before_the_links_stand_comes_once_they_do() -> None:
    store: dict[str, bytes] = {}
    attempt = Attempt("job", own_address=lambda _: LOOPBACK)
    first, second = JobLinks(print), JobLinks(print)
    try:
        second.begin(attempt, MemoryMailbox(1, 2, store))
        second.mailbox("ttp").put("controller-1", b"here")
        first.begin(attempt, MemoryMailbox(0, 2, store))
        until_reads(first.mailbox("ttp"), "controller-1", b"here")
    finally:
        first.close()
        second.close()


def test_notes_go_on_once_node_0_has_gone() -> None:
    with joined(4) as launchers:
        first, second, *others = [each.mailbox("end") for each in launchers]
        others[0].put("done/2", b"before")
        until_reads(first, "done/2", b"before")
        launchers[0].close()
        # Node 1 leads; what it needs comes from who has written it.
        until_reads(second, "done/2", b"before")
        second.put("done/1", b"after")
        for box in others:
            until_reads(box, "done/1", b"after")
        others[1].put("done/3", b"after")
        for box in (second, others[0]):
            until_reads(box, "done/3", b"after")


def test_a_node_in_between_that_goes_loses_nothing() -> None:
    with joined(7, fan_in=2) as launchers:
        boxes = [each.mailbox("end") for each in launchers]
        boxes[3].put("done/3", b"3")
        until_reads(boxes[4], "done/3", b"3")
        # 3 and 4 are below 1.
        launchers[1].close()
        boxes[4].put("done/4", b"4")
        for node in (0, 2, 3, 5, 6):
            until_reads(boxes[node], "done/4", b"4")
            until_reads(boxes[node], "done/3", b"3")


def test_nothing_of_the_attempt_before_is_in_the_next() -> None:
    stores: list[dict[str, bytes]] = [{}, {}, {}]
    attempt = Attempt("job", own_address=lambda _: LOOPBACK)
    nodes = [JobLinks(print), JobLinks(print)]
    opened: list[list[Mailbox]] = []
    try:
        for number, store in enumerate(stores):
            for node, links in enumerate(nodes):
                links.begin(attempt, MemoryMailbox(node, 2, store))
                links.starts()
            boxes = [links.mailbox("flash") for links in nodes]
            assert boxes[0].get("round/1") is None
            assert boxes[1].get("round/1") is None
            boxes[1].put(f"offer/{number}", b"%d" % number)
            until_reads(boxes[0], f"offer/{number}", b"%d" % number)
            boxes[0].put("round/1", b"of attempt %d" % number)
            until_reads(boxes[1], "round/1", b"of attempt %d" % number)
            assert boxes[0].get(f"offer/{number - 1}") is None
            opened.append(boxes)
        # What was put before the last meeting may still be read by who has stayed there.
        opened[1][1].put("late", b"of attempt 1")
        until_reads(opened[1][0], "late", b"of attempt 1")
        assert opened[2][0].get("late") is None
    finally:
        for links in nodes:
            links.close()


def test_the_attempt_before_is_heard_until_the_next_one_starts_however_often_nodes_meet() -> None:
    attempt = Attempt("job", own_address=lambda _: LOOPBACK)
    nodes = [JobLinks(print), JobLinks(print)]
    try:
        for number in range(4):
            store: dict[str, bytes] = {}
            for node, links in enumerate(nodes):
                links.begin(attempt, MemoryMailbox(node, 2, store))
                if not number:
                    links.starts()
            if not number:
                before = [links.mailbox("flash") for links in nodes]
        before[1].put("offer/1", b"of the attempt before")
        until_reads(before[0], "offer/1", b"of the attempt before")
        for links in nodes:
            links.starts()
            assert len(links._open) == 2
    finally:
        for links in nodes:
            links.close()
            assert links._open == []


def test_a_failure_is_known_to_all_although_node_0_ends_of_it() -> None:
    with joined(3) as launchers:
        first, second, third = [each.mailbox("end") for each in launchers]
        for box in (first, second, third):
            exit_barrier.begin(box)
        assert exit_barrier.reaches_all(second)
        assert exit_barrier.reaches_all(third)
        # No others fail: it stays for as long as they may need to hear of it.
        exit_barrier.report_failure(first, lambda: None, lambda: False)
        launchers[0].close()
        exit_barrier.wait_by_notes(second, 60.0 * PATIENCE)
        until_reads(third, exit_barrier.ended_key(0), b"1")


def test_a_note_that_was_read_can_be_forgotten() -> None:
    with joined(2) as launchers:
        first, second = (each.mailbox("straggler") for each in launchers)
        second.put("steps/1/0", b"old")
        until_reads(first, "steps/1/0", b"old")
        first.remove("steps/1/0")
        assert first.get("steps/1/0") is None
        second.put("steps/1/0", b"new")
        until_reads(first, "steps/1/0", b"new")


def test_too_large_a_note_is_refused_and_nothing_else() -> None:
    with joined(2) as launchers:
        first, second = (each.mailbox("flash") for each in launchers)
        with pytest.raises(ExchangeBroken, match="too large"):
            second.put("offer", bytes(MESSAGE_BYTES + 1))
        second.put("offer", b"small")
        assert wait_for_notes(first, ["offer"], 20 * PATIENCE)


def hostile() -> list[bytes]:
    """What a launcher that has gone mad sends, by every kind of frame for mailboxes."""
    post = encode(Post(1, 1, 1, True, "end/done", b"x"))
    wanted = encode(Wanted(1, 0, "end/done"))
    cut = [frame[:size] for frame in (post, wanted) for size in range(len(frame))]
    none = [
        encode(Post(1, 9, 1, True, "end/done", b"x")),
        encode(Wanted(9, 0, "end/done")),
        wanted[:16] + b"\xff\xfe",
        post[:20] + b"\xff\xff" + post[22:],
        wanted[:16] + b"n" * 500,
        encode(Post(1, 1, (1 << 64) - 1, False, "down/from below", b"x")),
        encode(Post(1, 0, 1 << 63, True, "", b"")),
        encode(Wanted(1, 1 << 63, "/")),
    ]
    return [*cut, *none]


def test_hostile_bytes_from_a_member_end_nothing() -> None:
    logged: list[str] = []
    store: dict[str, bytes] = {}
    attempt = Attempt("job", key=KEY, own_address=lambda _: LOOPBACK)
    nodes = [JobLinks(logged.append), JobLinks(logged.append)]
    member = LinkSockets()
    try:
        for node, links in enumerate(nodes):
            links.begin(attempt, MemoryMailbox(node, 2, store))
        first, second = (links.mailbox("ttp") for links in nodes)
        second.put("before", b"1")
        until_reads(first, "before", b"1")
        joined_as = nodes[0]._now
        member.connect(0, _endpoint(store), derive(KEY, "links"))
        for frame in hostile():
            eventually(_sends(member, frame), "a way")
        eventually(lambda: logged, "one line")
        second.put("after", b"2")
        until_reads(first, "after", b"2")
        assert joined_as is not None
        assert joined_as._broken is None
        assert len(logged) == 1
        assert "sent something that cannot be read" in logged[0]
    finally:
        member.close()
        for links in nodes:
            links.close()


def _sends(member: LinkSockets, frame: bytes) -> Callable[[], bool]:
    def send() -> bool:
        member.wait(0.01)
        return member.send_up(0, frame)

    return send


def _endpoint(store: dict[str, bytes]) -> tuple[str, int]:
    plain = json.loads(store["at/0"])
    return plain["address"], plain["port"]
