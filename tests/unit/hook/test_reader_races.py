"""The reader of a slot whose thread goes on: it returns only whole data (docs/log-format.md).

The writer works between two of the reader's reads, at the place that each test names.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from relkit.hook import layout
from relkit.hook.reader import read_state
from relkit.hook.state_file import Rows, StateFile
from tests.unit.hook.test_reader import blank, put, slot

GROUPS = 3
Writer = Callable[[bytearray], None]


def busy(numbers: range, flight: int = 0, flight_seq: int = 2) -> Rows:
    """A slot whose operations are of so many groups that read_state shows the whole ring."""
    rows = slot(numbers, flight, flight_seq)
    for number in numbers:
        rows["ring"][0][number % layout.RING_LENGTH]["communicator"] = number % GROUPS
    return rows


def recorder(path: Path, numbers: range, flight: int = 0) -> bytearray:
    """A recorder file with one slot."""
    data = blank(slots=1, communicators=GROUPS)
    groups = np.zeros(GROUPS, layout.COMMUNICATOR)
    groups["context"], groups["ready"], groups["size"] = 4096, 1, 2
    put(data, "communicators_at", groups)
    put(data, "slots_at", busy(numbers, flight))
    save(path, data)
    return data


def save(path: Path, data: bytearray) -> None:
    path.write_bytes(data)
    path.chmod(0o600)


def meanwhile(
    monkeypatch: pytest.MonkeyPatch, path: Path, data: bytearray, field: str, write: Writer
) -> None:
    """Before the reader first looks at a word of the slot again, its thread does something."""
    header = np.frombuffer(bytes(data[: layout.HEADER.itemsize]), layout.HEADER)[0]
    wanted = int(header["slots_at"]) + layout.offset_of(layout.SLOT, field)
    plain, pending = StateFile.word, [write]

    def word(self: StateFile, offset: int, kind: str = "<u8") -> int:
        if offset == wanted and pending:
            pending.pop()(data)
            # In place: the reader has the file open.
            with path.open("r+b") as stream:
                stream.write(data)
        return plain(self, offset, kind)

    monkeypatch.setattr(StateFile, "word", word)


def finished(path: Path) -> list[int]:
    return [op.seq for op in read_state(path).recent]


def test_of_a_full_ring_all_entries_but_the_one_that_is_written_next(tmp_path: Path) -> None:
    path = tmp_path / "77.rkhook"
    recorder(path, range(1000))
    assert finished(path) == list(range(1000 - layout.RING_LENGTH + 1, 1000))


def test_a_ring_that_is_not_full_is_read_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "77.rkhook"
    recorder(path, range(layout.RING_LENGTH - 1))
    assert finished(path) == list(range(layout.RING_LENGTH - 1))


@pytest.mark.parametrize("more", [1, 10, layout.RING_LENGTH - 2])
def test_entries_that_were_overwritten_meanwhile_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: int
) -> None:
    path = tmp_path / "77.rkhook"
    data = recorder(path, range(1000))
    meanwhile(
        monkeypatch, path, data, "finished",
        lambda held: put(held, "slots_at", busy(range(1000 + more))),
    )  # fmt: skip
    # max(0, f - 64, g - 63) .. f - 1
    assert finished(path) == list(range(1000 + more - layout.RING_LENGTH + 1, 1000))


def test_a_ring_that_was_overwritten_as_a_whole_gives_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "77.rkhook"
    data = recorder(path, range(1000))
    meanwhile(
        monkeypatch, path, data, "finished", lambda held: put(held, "slots_at", busy(range(1200)))
    )
    assert finished(path) == []


@pytest.mark.parametrize(
    ("flight_seq", "starts_ns"),
    [(6, [950]), (5, [])],
    ids=["next-is-whole", "next-is-being-written"],
)
def test_an_operation_that_is_replaced_while_it_is_copied_is_not_in_flight(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flight_seq: int, starts_ns: list[int]
) -> None:
    """In flight is the one that follows it, once that is whole."""
    path = tmp_path / "77.rkhook"
    data = recorder(path, range(5), flight=900)
    meanwhile(
        monkeypatch, path, data, "flight_seq",
        lambda held: put(held, "slots_at", busy(range(5), 950, flight_seq)),
    )  # fmt: skip
    assert [op.start_ns for op in read_state(path).in_flight] == starts_ns


def test_no_more_has_finished_than_was_started(tmp_path: Path) -> None:
    """The counter of what was started is written first, and may be read first."""
    path = tmp_path / "77.rkhook"
    data = recorder(path, range(5))
    rows = busy(range(5))
    rows["started"], rows["counted"] = 3, 2
    put(data, "slots_at", rows)
    save(path, data)
    state = read_state(path)
    assert (state.started, state.finished) == (7, 7)


def test_a_group_that_is_not_whole_yet_is_left_out_with_all_behind_it(tmp_path: Path) -> None:
    path = tmp_path / "77.rkhook"
    data = recorder(path, range(3))
    groups = np.zeros(GROUPS, layout.COMMUNICATOR)
    groups["context"], groups["size"] = 4096, 2
    groups["ready"] = (1, 0, 1)
    put(data, "communicators_at", groups)
    save(path, data)
    state = read_state(path)
    assert [group.index for group in state.communicators] == [0]
    assert [op.communicator for op in state.recent] == [0, -1, -1]
