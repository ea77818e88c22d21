"""The reader of the event ring: torn, overwritten and late events (docs/log-format.md)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from relkit.hook import layout
from relkit.hook.events import EventReader
from relkit.hook.state_file import StateFile

RING = layout.EVENT_COUNT


class Ring:
    """A recorder's file whose events a test writes as the recorder does."""

    def __init__(self, path: Path) -> None:
        self.path = path
        header = np.zeros(1, layout.HEADER)
        header["magic"], header["endian"] = layout.MAGIC, layout.ENDIAN
        header["version"] = layout.VERSION
        for name, size in layout.NUMPY_SIZES.items():
            header[name] = size
        for name in ("hooks_at", "communicators_at", "slots_at", "captures_at", "events_at"):
            header[name] = 4096
        header["event_count"], header["ready"] = RING, 1
        header["file_bytes"] = 4096 + RING * layout.EVENT.itemsize
        self.header, self.rows = header, np.zeros(RING, layout.EVENT)
        self.path.write_bytes(bytes(int(header["file_bytes"][0])))
        self.path.chmod(0o600)

    def write(self, events: range, torn: frozenset[int] = frozenset()) -> None:
        """Write these events; `torn` ones stay as a writer leaves them that is stopped midway."""
        for number in events:
            row = self.rows[number % RING]
            row["seq"] = number
            row["ticket"] = 0 if number in torn else number + 1
        self.header["events_begun"] = events.stop
        # In place: a reader has the file open.
        with self.path.open("r+b") as stream:
            stream.write(self.header.tobytes().ljust(4096, b"\0") + self.rows.tobytes())

    def reader(self) -> EventReader:
        return EventReader(self.path)


@pytest.fixture
def ring(tmp_path: Path) -> Ring:
    made = Ring(tmp_path / "7.rkhook")
    made.write(range(0))
    return made


def meanwhile(
    monkeypatch: pytest.MonkeyPatch, look: int, write: Callable[[], None], *, is_after: bool
) -> None:
    """Just before or after the reader looks how many events began, its process does something.

    Args:
        look: which of its looks, counted from 1.
    """
    begun_at = layout.offset_of(layout.HEADER, "events_begun")
    plain, looks = StateFile.word, 0

    def word(self: StateFile, offset: int, kind: str = "<u8") -> int:
        nonlocal looks
        if offset != begun_at:
            return plain(self, offset, kind)
        looks += 1
        if looks != look:
            return plain(self, offset, kind)
        if is_after:
            begun = plain(self, offset, kind)
            write()
            return begun
        write()
        return plain(self, offset, kind)

    monkeypatch.setattr(StateFile, "word", word)


def drained(reader: EventReader) -> tuple[list[int], int]:
    batch = reader.drain()
    return batch.rows["seq"].tolist(), batch.lost


def test_each_event_comes_once_and_in_order_across_the_rings_end(ring: Ring) -> None:
    reader = ring.reader()
    assert drained(reader) == ([], 0)
    ring.write(range(RING - 3))
    assert drained(reader) == (list(range(RING - 3)), 0)
    ring.write(range(RING - 3, RING + 4))
    assert drained(reader) == (list(range(RING - 3, RING + 4)), 0)
    assert drained(reader) == ([], 0)
    reader.close()


def test_a_full_ring_is_read_whole_and_what_is_older_is_lost(ring: Ring) -> None:
    reader = ring.reader()
    ring.write(range(RING + 10))
    assert drained(reader) == (list(range(10, RING + 10)), 10)
    reader.close()


def test_an_event_that_is_being_written_waits_with_all_behind_it(ring: Ring) -> None:
    reader = ring.reader()
    ring.write(range(20), torn=frozenset({12}))
    assert drained(reader) == (list(range(12)), 0)
    ring.write(range(12, 20))
    assert drained(reader) == (list(range(12, 20)), 0)
    reader.close()


def test_the_row_of_an_event_that_is_being_written_still_holds_an_older_one(ring: Ring) -> None:
    reader = ring.reader()
    ring.write(range(RING))
    assert len(reader.drain().rows) == RING
    # Begun, and not a word of it is there yet.
    ring.header["events_begun"] = RING + 1
    ring.write(range(RING + 1, RING + 1))
    assert drained(reader) == ([], 0)
    ring.write(range(RING, RING + 1))
    assert drained(reader) == ([RING], 0)
    reader.close()


@pytest.mark.parametrize(("behind", "is_given_up"), [(RING // 2 - 1, False), (RING // 2, True)])
def test_an_event_whose_writer_is_dead_is_given_up_after_half_a_ring(
    ring: Ring, behind: int, is_given_up: bool
) -> None:
    reader = ring.reader()
    ring.write(range(5 + behind), torn=frozenset({5}))
    seen, lost = drained(reader)
    expected = (
        [number for number in range(5 + behind) if number != 5] if is_given_up else [*range(5)]
    )
    assert (seen, lost) == (expected, int(is_given_up))
    reader.close()


@pytest.mark.parametrize("more", [1, 100])
def test_what_may_have_been_overwritten_while_it_was_copied_is_lost(
    ring: Ring, monkeypatch: pytest.MonkeyPatch, more: int
) -> None:
    """The process goes on between the copy and the second look at how many events began."""
    reader = ring.reader()
    ring.write(range(RING))
    meanwhile(monkeypatch, 2, lambda: ring.write(range(RING, RING + more)), is_after=False)
    # The copy has all of them; of these, `more` rows may be half of two events.
    assert drained(reader) == (list(range(more, RING)), more)
    assert drained(reader) == (list(range(RING, RING + more)), 0)
    reader.close()


def test_an_event_of_a_later_round_is_not_taken_for_the_one_that_was_there(
    ring: Ring, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process goes on between the first look at how many events began and the copy."""
    reader = ring.reader()
    ring.write(range(RING))
    meanwhile(monkeypatch, 1, lambda: ring.write(range(RING, RING + 8)), is_after=True)
    assert drained(reader) == (list(range(8, RING)), 8)
    assert drained(reader) == (list(range(RING, RING + 8)), 0)
    reader.close()
