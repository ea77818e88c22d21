"""What a launcher holds of notes: each belongs to one leader."""

from __future__ import annotations

from relkit.launch.control.frame import Note, Shared
from relkit.launch.control.note_box import NoteBox


def test_what_was_meant_for_a_leader_that_is_gone_goes_to_nobody() -> None:
    box = NoteBox(2, 3)
    box.move((0, 2))
    box.put("failure/2", b"for node 0")
    box.move((1, 2))
    assert box.take_unsent() == []
    note = box.put("failure/2", b"for node 1")
    assert box.take_unsent() == [note]
    assert note.leader == 1


def test_a_leader_takes_nothing_that_was_meant_for_another() -> None:
    box = NoteBox(1, 3)
    box.move((1,))
    box.take(Note(2, 2, 0, True, "failure/2", b"for node 0"))
    assert box.get("failure/2") is None
    box.take(Note(2, 2, 1, True, "failure/2", b"for node 1"))
    assert box.get("failure/2") == b"for node 1"


def test_what_cannot_be_sent_is_kept_and_a_newer_one_goes_before_it() -> None:
    box = NoteBox(2, 3)
    box.move((0, 2))
    box.put("node/2", b"old")
    (old,) = box.take_unsent()
    new = box.put("node/2", b"new")
    box.put_back(old)
    assert box.take_unsent() == [new]
    box.send_again()
    assert box.take_unsent() == [new]


def test_what_nodes_share_is_taken_once_the_newest_of_each_last() -> None:
    box = NoteBox(0, 9)
    box.move((0,))
    for child, data in ((1, b"a"), (2, b"b"), (1, b"c")):
        box.take_shared(Shared(child, 0, data))
    assert box.shared() == [b"a", b"c", b"b"]
    assert box.shared() == []


def test_what_is_shared_with_a_leader_that_is_gone_goes_to_nobody() -> None:
    box = NoteBox(2, 9)
    box.move((0, 2))
    box.share(b"own")
    box.take_shared(Shared(5, 0, b"for node 0"))
    box.move((1, 2))
    assert box.shared() == []
    box.take_shared(Shared(5, 0, b"for node 0"))
    assert box.shared() == []
    box.share(b"old")
    box.share(b"new")
    box.take_shared(Shared(5, 1, b"for node 1"))
    assert box.shared() == [b"new", b"for node 1"]


def test_what_nobody_takes_is_kept_in_a_fixed_room() -> None:
    box = NoteBox(0, 9)
    box.move((0,))
    for number in range(1000):
        box.take_shared(Shared(1, 0, b"%d" % number))
    assert box.shared() == [b"996", b"997", b"998", b"999"]


def test_the_first_of_several_notes_is_that_of_the_lowest_node() -> None:
    box = NoteBox(0, 20)
    box.move((0,))
    assert box.first("failure/") is None
    for node in (10, 9, 11):
        box.take(Note(node, node, 0, True, f"failure/{node}", b"%d" % node))
    box.take(Note(1, 1, 0, True, "failure/x", b"no node"))
    assert box.first("failure/") == b"9"
    box.move((1, 0))
    assert box.first("failure/") is None
