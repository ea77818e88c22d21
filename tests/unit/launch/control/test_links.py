"""Launchers' links over real sockets: notes up and down, succession, and who is kept out."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import zmq
from zmq.utils import z85

from relkit.launch.control.frame import BeatDown, BeatUp, Note, decode, encode
from relkit.launch.control.links import Links
from relkit.launch.control.sockets import LinkSockets
from relkit.launch.job.attempt import Attempt
from relkit.launch.job.exchange import ExchangeBroken, MemoryMailbox
from relkit.net.operator_secret import derive
from tests.patience import PATIENCE
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(60 * PATIENCE)
LOOPBACK = "127.0.0.1"
KEY = bytes(range(32))


@contextmanager
def joined(
    nodes: int, fan_in: int = 32, session: bytes = b"", store: dict[str, bytes] | None = None
) -> Iterator[list[Links]]:
    """Launchers that have met in a store of the test's."""
    notes = {} if store is None else store
    logged: list[str] = []
    launchers = [
        Links(
            Attempt("job", key=session, own_address=lambda _: LOOPBACK),
            MemoryMailbox(node, nodes, notes),
            logged.append,
            fan_in,
        )
        for node in range(nodes)
    ]
    try:
        yield launchers
        assert logged == []
    finally:
        for each in launchers:
            each.close()


def until(look: Callable[[], object]) -> None:
    eventually(look, "that")


def until_has(launcher: Links, key: str, data: bytes) -> None:
    eventually(lambda: launcher.get(key) == data, f"{key} at node {launcher.node}")


@pytest.mark.parametrize("session", [b"", KEY])
def test_what_each_puts_reaches_node_0_and_what_that_one_puts_reaches_all(session: bytes) -> None:
    with joined(9, fan_in=2, session=session) as launchers:
        for each in launchers:
            each.put(f"node/{each.node}", b"summary of %d" % each.node)
        first, *others = launchers
        for each in others:
            until_has(first, f"node/{each.node}", b"summary of %d" % each.node)
        # It leads, so that its own goes to all.
        for each in others:
            until_has(each, "node/0", b"summary of 0")
        assert {each.leader for each in launchers} == {0}


def test_what_all_share_comes_to_node_0_and_that_of_several_as_one() -> None:
    with joined(9, fan_in=2) as launchers:
        first, *others = launchers
        came: list[bytes] = []

        def has_all() -> bool:
            for each in others:
                each.share(b"<%d>" % each.node)
            came.extend(first.take_shared())
            return all(any(b"<%d>" % each.node in data for data in came) for each in others)

        def has_several() -> bool:
            # Nodes 3, 4, 7 and 8 are below node 1, which adds its own once they report to it.
            return has_all() and any(b"<1>" in data and data.count(b"<") > 1 for data in came)

        until(has_several)
        assert not any(b"<1>" in data and b"<2>" in data for data in came)


def test_large_notes_come_whole() -> None:
    with joined(3, fan_in=2) as launchers:
        whole = bytes(range(256)) * (1 << 14)
        launchers[2].put("incident/0/node/2", whole)
        until(lambda: launchers[0].get("incident/0/node/2") == whole)


def test_the_next_one_leads_once_node_0_has_gone_and_gets_what_is_put_then() -> None:
    with joined(4) as launchers:
        first, second, *others = launchers
        for each in (second, *others):
            each.put(f"node/{each.node}", b"before")
            until_has(first, f"node/{each.node}", b"before")
        first.put("incident/0", b"of node 0")
        until(lambda: second.get("incident/0"))
        first.close()
        for each in (second, *others):
            eventually(lambda each=each: each.leader == 1, "node 1 leads")  # type: ignore[misc]
        assert second.silent == {0}
        # Nothing of what the one before was told, or has asked for, counts for it.
        assert second.get("node/2") is None
        assert others[0].get("incident/0") is None
        for each in others:
            each.put(f"node/{each.node}", b"after")
            until_has(second, f"node/{each.node}", b"after")
        second.put("incident/0", b"of node 1")
        for each in others:
            until_has(each, "incident/0", b"of node 1")


def test_what_is_below_a_node_that_goes_is_heard_by_the_one_above() -> None:
    with joined(7, fan_in=2) as launchers:
        # 0 has 1 and 2, and 1 has 3 and 4.
        launchers[3].put("node/3", b"before")
        until(lambda: launchers[0].get("node/3") == b"before")
        launchers[0].remove("node/3")
        launchers[0].put("incident/0", b"asked")
        until(lambda: launchers[4].get("incident/0"))
        launchers[1].close()
        # It is told again, as it might have been on its way.
        until(lambda: launchers[0].get("node/3") == b"before")
        launchers[4].put("node/4", b"later")
        until(lambda: launchers[0].get("node/4") == b"later")
        launchers[0].put("incident/0/result", b"judged")
        for node in (2, 3, 4, 5, 6):
            until_has(launchers[node], "incident/0/result", b"judged")
        assert launchers[3].leader == 0


def test_a_neighbour_without_the_key_gets_nothing_and_gives_nothing() -> None:
    store: dict[str, bytes] = {}
    with joined(2, session=KEY, store=store) as launchers:
        launchers[1].put("node/1", b"1")
        until(lambda: launchers[0].get("node/1"))
        launchers[0].put("incident/0", b"asked")
        port = json.loads(store["at/0"])["port"]
        stranger = LinkSockets()
        try:
            stranger.connect(0, (LOOPBACK, port), bytes(32))
            for _ in range(20):
                assert not stranger.send_up(0, encode(BeatUp(1, True)))
                assert not stranger.send_up(0, encode(Note(1, 1, 0, True, "node/1", b"forged")))
                stranger.wait(0.1)
                assert list(stranger.from_above()) == []
        finally:
            stranger.close()
        assert launchers[0].get("node/1") == b"1"


def test_who_has_the_key_is_answered() -> None:
    below, above = LinkSockets(), LinkSockets()
    try:
        port = above.listen(LOOPBACK, KEY)
        below.connect(0, (LOOPBACK, port), KEY)

        def sent() -> bool:
            above.wait(0.05)
            list(above.from_below())
            return below.send_up(0, encode(BeatUp(1, True)))

        until(sent)

        def answered() -> list[bytes]:
            above.wait(0.05)
            for child, frame in above.from_below():
                assert decode(frame, 2) == BeatUp(1, True)
                above.send_down(child, encode(BeatDown(0, (0,))))
            below.wait(0.05)
            return list(below.from_above())

        answers = eventually(answered, "an answer")
        assert decode(answers[0], 2) == BeatDown(0, (0,))
    finally:
        below.close()
        above.close()


def test_a_store_that_does_not_answer_leaves_no_links_and_blocks_nobody() -> None:
    class Dead(MemoryMailbox):
        def put(self, key: str, data: bytes) -> None:
            raise ExchangeBroken("the rendezvous store failed: gone")

    logged: list[str] = []
    only = Links(Attempt("job", own_address=lambda _: LOOPBACK), Dead(0, 2), logged.append)

    def is_broken() -> bool:
        try:
            only.get("node/1")
        except ExchangeBroken:
            return True
        return False

    until(is_broken)
    with pytest.raises(ExchangeBroken, match="no links to the other launchers"):
        only.put("node/0", b"")
    assert logged == ["no links to the other launchers: the rendezvous store failed: gone"]
    only.close()


def test_a_host_whose_name_means_its_loopback_takes_the_way_to_the_others() -> None:
    store: dict[str, bytes] = {}
    asked: list[str] = []

    def own_address(peer: str) -> str:
        asked.append(peer)
        return LOOPBACK if not peer else "127.0.0.2"

    attempt = Attempt("job", own_address=own_address)
    first = Links(attempt, MemoryMailbox(0, 2, store), lambda _: None)
    try:
        # The other one says that it is reached by an address of the net.
        store["route/1"] = b'{"address": "192.0.2.7"}'
        until(lambda: "at/0" in store)
        assert b"127.0.0.2" in store["at/0"]
        assert asked == ["", "192.0.2.7"]
    finally:
        first.close()


@pytest.mark.long
def test_a_job_of_one_node_and_a_command_that_starts_none_load_nothing_of_it() -> None:
    code = (
        "import sys, relkit.launch.job_run\n"
        "from relkit.launch.control.job_links import JobLinks\n"
        "from relkit.launch.job.attempt import Attempt\n"
        "from relkit.launch.job.exchange import MemoryMailbox\n"
        "links = JobLinks(print)\n"
        "links.begin(Attempt('job'), MemoryMailbox())\n"
        "links.close()\n"
        "print('zmq' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60 * PATIENCE
    )
    assert done.stdout == "False\n", done.stderr


def test_who_knows_where_to_connect_and_is_no_member_is_not_let_in() -> None:
    above, context = LinkSockets(), zmq.Context()
    stranger = context.socket(zmq.DEALER)
    try:
        port = above.listen(LOOPBACK, KEY)
        stranger.curve_serverkey = zmq.curve_public(z85.encode(derive(KEY, "links server")))
        stranger.curve_publickey, stranger.curve_secretkey = zmq.curve_keypair()
        stranger.connect(f"tcp://{LOOPBACK}:{port}")
        stranger.send(encode(BeatUp(1, True)))
        refused = stranger.get_monitor_socket(zmq.EVENT_HANDSHAKE_FAILED_AUTH)

        def is_refused() -> bool:
            above.wait(0.05)
            assert list(above.from_below()) == []
            return bool(refused.poll(0))

        until(is_refused)
    finally:
        stranger.disable_monitor()
        context.destroy(linger=0)
        above.close()
