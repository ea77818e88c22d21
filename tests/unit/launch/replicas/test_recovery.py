"""Launchers agree on a round of copies, over real sockets, and bring it into their slots."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from relkit.errors import RelkitError
from relkit.flash_checkpoint.replicas.copy_folder import CopyFolder
from relkit.flash_checkpoint.replicas.origin import Origin
from relkit.launch.job.exchange import ExchangeBroken, MemoryMailbox
from relkit.launch.replicas import recovery
from relkit.launch.replicas.peers import Doorway, Peer
from relkit.launch.replicas.rank_slots import RankSlots
from relkit.launch.replicas.recovery import Hello, Recovered, Recovery, own_steps_of
from tests.unit.launch.replicas.test_exchange import SECRET, WORLD, copied, folder_of

pytestmark = pytest.mark.timeout(60)

OLD, NEW = "0a" * 16, "0b" * 16


class Node:
    """A launcher with one rank, of the same number."""

    def __init__(self, number: int, slots: RankSlots, notes: dict[str, bytes]) -> None:
        self.number, self.slots = number, slots
        self.copies = CopyFolder(slots.folder, WORLD)
        self.door = Doorway("127.0.0.1", SECRET, self.copies, WORLD, lambda _line: None)
        self.mailbox = MemoryMailbox(number, WORLD, notes)
        self.result: Recovered | None = None
        self.error: RelkitError | None = None
        self.timeout_s = 20.0

    def recover(self) -> None:
        peer = Peer(
            self.number, f"h{self.number}", str(self.number), self.door.address, self.door.port,
            tuple(self.slots.ranks),
        )  # fmt: skip
        rows = tuple((c.rank, c.round_id, c.header.step) for c in self.copies.copies()[0])
        hello = Hello(peer, 1, rows, own_steps_of(self.slots.steps()))
        try:
            self.result = Recovery(
                self.mailbox, hello, WORLD, self.slots.folder, self.copies, SECRET,
                self.door.let_fetch, self.timeout_s,
            ).run()  # fmt: skip
        except RelkitError as error:
            self.error = error


class Pair:
    """Node 0, which has saved and holds copies of both ranks, and node 1, which is new."""

    def __init__(self, folder: Path) -> None:
        notes: dict[str, bytes] = {}
        slots = folder_of(folder / "job-zero", 0, 3, 4, 5)
        lost = folder_of(folder / "job-lost", 1, 3, 4, 5)
        (folder / "job-new").mkdir(mode=0o700)
        self.old, self.new = (
            Node(0, slots, notes),
            Node(1, RankSlots(folder / "job-new", [1], WORLD), notes),
        )
        for round_id, step in ((OLD, 4), (NEW, 5)):
            copied(self.old.copies, slots, step, round_id, keep=OLD)
            copied(self.old.copies, lost, step, round_id, keep=OLD)

    def recover(self) -> tuple[Recovered, Recovered]:
        threads = [threading.Thread(target=node.recover) for node in (self.old, self.new)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(50)
        assert self.old.result is not None, self.old.error
        assert self.new.result is not None, self.new.error
        return self.old.result, self.new.result

    def damage(self, rank: int, round_id: str) -> None:
        with self.old.copies.of(rank, round_id).path.open("r+b") as file:
            file.seek(-3000, 2)
            file.write(b"\xff" * 8)

    def close(self) -> None:
        for node in (self.old, self.new):
            node.door.close()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path)
    yield made
    made.close()


def test_a_new_node_gets_the_newest_round(pair: Pair) -> None:
    both = pair.recover()
    words = "from memory (rank 0) and from replicas on h0 (rank 1)"
    assert [result.origin for result in both] == [Origin(5, words)] * 2
    assert [result.keep for result in both] == [NEW] * 2
    assert pair.new.slots.steps() == {1: [5]}
    # What is not of that step is gone, so that nothing else can be loaded.
    assert pair.old.slots.steps() == {0: [5]}
    assert {copy.round_id for copy in pair.old.copies.copies()[0]} == {NEW}


def test_a_damaged_replica_is_refused_by_name_and_all_take_the_round_before(pair: Pair) -> None:
    pair.damage(1, NEW)
    both = pair.recover()
    assert [result.origin.step for result in both] == [4, 4]
    assert pair.new.slots.steps() == {1: [4]}
    assert pair.old.slots.steps() == {0: [4]}


@pytest.mark.parametrize("rank", [0, 1])
def test_where_none_is_left_disk_is_used_and_it_is_said_why(pair: Pair, rank: int) -> None:
    for round_id in (OLD, NEW):
        pair.damage(rank, round_id)
    both = pair.recover()
    for result in both:
        assert result.origin.step == -1
        for step in (4, 5):
            sentence = f"step {step} of rank {rank} on h0: block 2 does not match its checksum"
            assert sentence in result.origin.why_not
    assert pair.new.slots.steps() == {1: []}


def test_slots_that_all_have_go_before_replicas(pair: Pair, tmp_path: Path) -> None:
    pair.new.slots = folder_of(tmp_path / "job-again", 1, 4, 5)
    both = pair.recover()
    assert [result.origin for result in both] == [Origin()] * 2
    # They stay: the next loss may need them.
    assert [result.keep for result in both] == [NEW] * 2
    assert pair.old.slots.steps() == {0: [5, 4]}


def test_an_incomplete_round_is_not_used(pair: Pair) -> None:
    pair.old.copies.of(0, NEW).path.unlink()
    both = pair.recover()
    assert [result.origin.step for result in both] == [4, 4]


def test_a_node_that_says_nothing(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "HELLO_S", 0.2)
    pair.old.recover()
    assert isinstance(pair.old.error, ExchangeBroken)
    assert "node 1 says nothing of replicas (--replica-count must be" in str(pair.old.error)
    # Nothing was touched.
    assert pair.old.slots.steps() == {0: [5, 4]}


def test_where_there_is_no_time_left_disk_is_used(pair: Pair) -> None:
    pair.new.timeout_s = 0.0
    both = pair.recover()
    for result in both:
        assert result.origin.step == -1
        for step in (4, 5):
            sentence = f"step {step} of rank 1 on h0: there is no time left to connect to h0"
            assert sentence in result.origin.why_not


def hello(**changes: object) -> bytes:
    plain = {
        "node": 1, "name": "a", "host": "b", "address": "127.0.0.1", "port": 1, "ranks": [1],
        "count": 1, "copies": [], "own": [], **changes,
    }  # fmt: skip
    return json.dumps(plain).encode()


@pytest.mark.parametrize(
    "changes",
    [
        {"port": 0}, {"port": 65_536}, {"port": float("inf")}, {"count": float("inf")},
        {"address": "a.name.to.look.up"}, {"address": ""}, {"node": 0}, {"node": 2},
        {"ranks": [float("-inf")]}, {"own": [[1, float("inf")]]},
        {"copies": [[0, "ab" * 16, float("nan")]]}, {"copies": [[0, "x", 1]]},
    ],
)  # fmt: skip
def test_a_note_of_what_cannot_be(pair: Pair, changes: dict[str, object]) -> None:
    assert Hello.from_note(hello()).peer.port == 1
    pair.old.mailbox.put("hello/1", hello(**changes))
    pair.old.recover()
    assert isinstance(pair.old.error, ExchangeBroken)
    assert "a node's note on its replicas" in str(pair.old.error)


@pytest.mark.parametrize(
    "note",
    [b"null", b"{}", b'{"node": 1, "ranks": ["x"]}', b"\xff",
     b'{"node": 1, "name": "a", "host": "b", "address": "c", "port": 1, "ranks": [0],'
     b' "count": 1, "copies": [], "own": []}'],
)  # fmt: skip
def test_a_note_that_is_none(pair: Pair, note: bytes) -> None:
    pair.old.mailbox.put("hello/1", note)
    pair.old.recover()
    assert isinstance(pair.old.error, ExchangeBroken)
