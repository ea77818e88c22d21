"""Copies between two launchers over real sockets, and what a hostile or broken peer can do."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from relkit.flash_checkpoint.memory_saver import MemorySaver
from relkit.flash_checkpoint.replicas.copy_folder import CopiesClosed, CopyFolder
from relkit.flash_checkpoint.replicas.copy_stream import parts
from relkit.flash_checkpoint.slots import slot_folder
from relkit.flash_checkpoint.slots import slot_format as form
from relkit.flash_checkpoint.slots.errors import BadSlot
from relkit.launch.replicas import wire
from relkit.launch.replicas.peers import FETCH, PUSH, Doorway, Peer, connect, fetch, push
from relkit.launch.replicas.rank_slots import RankSlots
from relkit.launch.replicas.wire import Answer, Asked, Broken, Link, RateLimit
from tests.patience import PATIENCE

pytestmark = pytest.mark.timeout(60)

SECRET = b"s" * 32
WORLD = 2
ROUND, NEXT = "ab" * 16, "cd" * 16


def folder_of(path: Path, rank: int, *steps: int, elements: int = 600_000) -> RankSlots:
    """A launcher's folder, in which one rank has saved steps."""
    path.mkdir(mode=0o700)
    owner = slot_folder.owner(path, rank, WORLD)
    saver = MemorySaver(slot_folder.slots_path(path, rank), owner, threads=1)
    for step in steps:
        saver.save(step, {"w": torch.full((elements,), float(step)), "step": step}).wait()
    saver.close()
    return RankSlots(path, [rank], WORLD)


def copied(copies: CopyFolder, slots: RankSlots, step: int, round_id: str, keep: str = "") -> None:
    (rank,) = slots.ranks
    slot = slots.locked(rank, step)
    try:
        copies.add(rank, round_id, slot.header, slot.read_into, keep=keep, spare_bytes=0)
    finally:
        slot.close()


@pytest.fixture
def sender(tmp_path: Path) -> CopyFolder:
    """Rank 1's node, with a copy of step 7."""
    slots = folder_of(tmp_path / "job-sender", 1, 6, 7)
    copies = CopyFolder(slots.folder, WORLD)
    copied(copies, slots, 7, ROUND)
    return copies


class Receiver:
    """Node 0, which takes copies of rank 1 from node 1."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700)
        self.said: list[str] = []
        self.copies = CopyFolder(folder, WORLD)
        self.door = Doorway("127.0.0.1", SECRET, self.copies, WORLD, self.said.append)
        self.peer = Peer(0, "h1", "a", self.door.address, self.door.port, (0,))
        self.door.take_copies_of(Peer(1, "h2", "b", "", 0, (1,)), lambda: self.spare_bytes)
        self.door.let_fetch(1, [1])
        self.spare_bytes = 0

    def link(self, secret: bytes = SECRET, phase: int = PUSH) -> Link:
        return connect(self.peer, phase, 1, secret, threading.Event())

    def steps(self) -> list[int]:
        return [copy.header.step for copy in self.copies.copies()[0]]


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Receiver]:
    made = Receiver(tmp_path / "job-receiver")
    yield made
    made.door.close()


def test_a_copy_gets_there_and_can_be_fetched(sender: CopyFolder, receiver: Receiver) -> None:
    link = receiver.link()
    assert push(link, sender, Asked(1, ROUND), WORLD, RateLimit(0.0)) == (Answer.WHOLE, "")
    link.close()
    own, there = sender.of(1, ROUND), receiver.copies.of(1, ROUND)
    assert own.path.read_bytes() == there.path.read_bytes()
    assert there.path.stat().st_mode & 0o777 == 0o600
    back = receiver.link(phase=FETCH)
    header, read_into = fetch(back, Asked(1, ROUND), WORLD)
    assert header == own.header
    data = own.path.read_bytes()
    for offset, size in parts(header):
        piece = bytearray(size)
        read_into(memoryview(piece), offset)
        assert piece == data[offset : offset + size]
    # Another rank's is not given out.
    with pytest.raises(Broken, match="rank 0 is not"):
        fetch(back, Asked(0, ROUND), WORLD)
    back.close()


def test_who_does_not_know_the_secret_gets_nothing(sender: CopyFolder, receiver: Receiver) -> None:
    with pytest.raises(Broken, match=r"h1 .127\.0\.0\.1. cannot be reached"):
        receiver.link(b"x" * 32)
    assert receiver.steps() == []


def cut_short(link: Link, sender: CopyFolder) -> None:
    """Half of the payload, and the end."""
    begin(link, sender)
    for number, (offset, size) in enumerate(parts(sender.of(1, ROUND).header)):
        if number < 3:
            link.send(sender.of(1, ROUND).path.read_bytes()[offset : offset + size])


def changed(link: Link, sender: CopyFolder) -> None:
    """All of it, and one bit is another."""
    begin(link, sender)
    copy = sender.of(1, ROUND)
    data = bytearray(copy.path.read_bytes())
    data[-5000] ^= 1
    for offset, size in parts(copy.header):
        link.send(bytes(data[offset : offset + size]))
    kind, words = link.read_answer()
    assert (kind, "block 2 does not match its checksum" in words) == (Answer.REFUSED, True)


def of_another_rank(link: Link, sender: CopyFolder) -> None:
    """A rank that is not that node's."""
    link.begin()
    link.ask(Asked(0, ROUND))
    link.send(bytes(200))
    assert link.read_answer() == (Answer.REFUSED, "rank 0 is not that node's (foreign)")


def of_another_job(link: Link, sender: CopyFolder) -> None:
    """A header that says another round than the offer."""
    copy = sender.of(1, ROUND)
    link.begin()
    link.ask(Asked(1, NEXT))
    link.send(copy.path.read_bytes()[: form.SLOT_HEADER_BYTES])
    assert link.read_answer()[0] is Answer.REFUSED


def nonsense(link: Link, sender: CopyFolder) -> None:
    """Anything, without end."""
    link.begin()
    with pytest.raises(Broken):
        drip(link, os.urandom(1 << 16), 0.0)


def drip(link: Link, data: bytes, pause_s: float) -> None:
    for _ in range(5_000):
        link.send(data)
        time.sleep(pause_s)


def begin(link: Link, sender: CopyFolder) -> None:
    copy = sender.of(1, ROUND)
    link.begin()
    link.ask(Asked(1, ROUND))
    link.send(copy.path.read_bytes()[: form.SLOT_HEADER_BYTES])
    assert link.read_answer() == (Answer.GO, "")


Deed = Callable[[Link, CopyFolder], None]


@pytest.mark.parametrize("deed", [cut_short, changed, of_another_rank, of_another_job, nonsense])
def test_a_hostile_peer_leaves_nothing_and_the_next_copy_is_taken(
    sender: CopyFolder, receiver: Receiver, deed: Deed
) -> None:
    link = receiver.link()
    deed(link, sender)
    link.close()
    again = receiver.link()
    # The rank's file may still be in use for a moment by the one before.
    until_whole(again, sender)
    again.close()
    assert receiver.steps() == [7]
    assert sorted(p.name for p in receiver.copies.path.iterdir()) == [f"rank-1.{ROUND}.copy"]


def until_whole(link: Link, sender: CopyFolder) -> None:
    kind, words = push(link, sender, Asked(1, ROUND), WORLD, RateLimit(0.0))
    assert kind is Answer.WHOLE, words


def test_a_peer_that_stops_sending_is_given_up(
    sender: CopyFolder, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "IDLE_S", 0.3)
    link = receiver.link()
    begin(link, sender)
    # It says no more, and keeps the connection.
    link.connection.settimeout(20)
    assert link.connection.recv(1 << 16) == b""
    link.close()
    assert receiver.steps() == []


def test_a_peer_that_takes_for_ever_is_given_up(
    sender: CopyFolder, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "_FIXED_S", 0.5)
    monkeypatch.setattr(wire, "_MIN_BYTES_PER_S", 1e9)
    link = receiver.link()
    begin(link, sender)
    link._until_s = time.monotonic() + 60
    with pytest.raises(Broken):
        drip(link, b"x", 0.01)
    link.close()
    assert receiver.steps() == []
    # Not because of what has come.
    assert receiver.said == []


def test_no_room_is_said_and_the_copy_before_stays(
    tmp_path: Path, sender: CopyFolder, receiver: Receiver
) -> None:
    link = receiver.link()
    assert push(link, sender, Asked(1, ROUND), WORLD, RateLimit(0.0))[0] is Answer.WHOLE
    copied(sender, RankSlots(tmp_path / "job-sender", [1], WORLD), 6, NEXT, keep=ROUND)
    receiver.spare_bytes = 1 << 50
    kind, words = push(link, sender, Asked(1, NEXT, ROUND), WORLD, RateLimit(0.0))
    assert (kind, "bytes are needed" in words) == (Answer.NO_ROOM, True)
    assert receiver.steps() == [7]
    receiver.spare_bytes = 0
    assert push(link, sender, Asked(1, NEXT, ROUND), WORLD, RateLimit(0.0))[0] is Answer.WHOLE
    assert sorted(receiver.steps()) == [6, 7]
    link.close()


def test_a_copy_never_takes_the_place_of_the_one_to_keep(
    tmp_path: Path, sender: CopyFolder
) -> None:
    slots = RankSlots(tmp_path / "job-sender", [1], WORLD)
    copied(sender, slots, 6, NEXT, keep=ROUND)
    third = "ef" * 16
    copied(sender, slots, 7, third, keep=NEXT)
    rounds = {copy.round_id for copy in sender.copies()[0]}
    assert rounds == {NEXT, third}
    sender.keep_only({third})
    assert {copy.round_id for copy in sender.copies()[0]} == {third}


def test_a_slot_that_changes_while_it_is_copied_is_refused(
    tmp_path: Path, sender: CopyFolder
) -> None:
    slots = RankSlots(tmp_path / "job-sender", [1], WORLD)
    slot = slots.locked(1, 7)

    def read_into(view: memoryview, offset: int) -> None:
        slot.read_into(view, offset)
        view[0] ^= 1

    with pytest.raises(BadSlot, match="its layout does not match"):
        sender.add(1, NEXT, slot.header, read_into, keep=ROUND, spare_bytes=0)
    slot.close()
    assert [copy.round_id for copy in sender.copies()[0]] == [ROUND]
    assert not list(sender.path.glob("*.new"))


def test_a_damaged_copy_is_refused_by_name(sender: CopyFolder) -> None:
    copy = sender.of(1, ROUND)
    with copy.path.open("r+b") as file:
        file.seek(20)
        file.write(b"\xff\xff")
    whole, refused = sender.copies()
    assert whole == []
    assert refused == [
        "the copy of rank 1: its header does not match its checksum (damaged)"
    ]  # fmt: skip


def test_after_the_end_of_an_attempt_nothing_is_taken_in(
    tmp_path: Path, sender: CopyFolder
) -> None:
    slots = RankSlots(tmp_path / "job-sender", [1], WORLD)
    sender.close()
    with pytest.raises(CopiesClosed):
        copied(sender, slots, 6, NEXT)
    assert [copy.round_id for copy in sender.copies()[0]] == [ROUND]


def test_a_link_has_an_end_however_much_is_to_come() -> None:
    here, there = socket.socketpair()
    with here, there:
        link = Link(here, end_s=time.monotonic() + 0.3 * PATIENCE)
        link.begin(1 << 50)
        dripping = threading.Thread(target=until_closed, args=(there,))
        dripping.start()
        with pytest.raises(Broken, match=r"it takes too long|timed out"):
            link.read(1 << 20)
        link.close()
        dripping.join(20)
        assert not dripping.is_alive()


def until_closed(peer: socket.socket) -> None:
    """A peer that sends a byte now and then: each in good time, and all of it never."""
    with suppress(OSError):
        while True:
            peer.sendall(b"x")
            time.sleep(0.02)


@pytest.mark.parametrize("round_id", ["../../etc/x", "ab", "AB" * 16, ("ab " * 16).strip()])
def test_a_round_has_a_number_and_no_other_name(
    tmp_path: Path, sender: CopyFolder, round_id: str
) -> None:
    slots = RankSlots(tmp_path / "job-sender", [1], WORLD)
    with pytest.raises(BadSlot, match="is not the number of a round"):
        sender.of(1, round_id)
    with pytest.raises((BadSlot, ValueError)):
        copied(sender, slots, 7, round_id, keep=ROUND)
    assert [path.name for path in sender.path.iterdir()] == [f"rank-1.{ROUND}.copy"]


def test_a_pace_is_kept() -> None:
    waits: list[float] = []
    rate_limit = RateLimit(1e6, waits.append)
    began_s = time.monotonic()
    for _ in range(4):
        rate_limit.sent(500_000)
    took_s = time.monotonic() - began_s
    assert waits[-1] == pytest.approx(2.0 - took_s, abs=0.1 + took_s)
