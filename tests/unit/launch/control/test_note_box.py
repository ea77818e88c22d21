"""What a launcher holds of notes: each belongs to one leader."""

from __future__ import annotations

from relkit.launch.control.frame import Note
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
