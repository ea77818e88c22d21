"""A log of any size takes little memory, and what matters in it is seen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from relkit.why.candidates import Scanner
from relkit.why.log_reader import LogReader
from relkit.why.model import Speaker
from relkit.why.speakers import Prefixes
from tests.unit.why.job_logs import raised, steps

TEXT = f"{steps(50)}\nan error here\r\nmore\n{steps(50)}\rValueError: x\n".encode()


@pytest.mark.parametrize("size", [1, 2, 7, 64, 1000, 1 << 20])
def test_lines_are_the_same_however_the_pieces_are_cut(size: int) -> None:
    pieces = [TEXT[at : at + size] for at in range(0, len(TEXT), size)]
    told = [(line.text, line.number, line.offset) for line in Scanner(pieces)]
    assert told == [
        ("an error here", 51, TEXT.index(b"an error")),
        ("ValueError: x", 102, TEXT.index(b"ValueError")),
    ]


def test_a_line_without_end_is_read_in_parts() -> None:
    part = b"x" * (1 << 20) + b" error "
    places = [line.offset for line in Scanner([part] * 8)]
    assert places == [len(part) * n for n in range(8)]


def read(pieces: Iterator[bytes]) -> LogReader:
    reader = LogReader(Path("a.log"), Speaker(), Prefixes())
    reader.read(pieces)
    return reader


def test_of_very_many_tracebacks_the_last_is_read() -> None:
    handled = (raised(None, "ValueError: retry") + "\nstep 1\n").encode() * 100

    def pieces() -> Iterator[bytes]:
        for _ in range(70):
            yield handled
        yield raised(None, "MemoryError").encode() + b"\n"

    facts = read(pieces()).facts
    assert facts.sightings[-1].cause == "host-oom"
    assert facts.sightings[-1].line == 7000 * 7 + 6
    assert facts.note


def test_the_same_line_with_other_numbers_is_looked_at_once() -> None:
    lines = b"".join(b"block %x: checksum error ignored, %d left\n" % (n, n) for n in range(20_000))
    scanner = Scanner([lines])
    seen = 0
    for line in scanner:
        seen += 1
        scanner.known.add(line.text.encode().translate(None, b"0123456789abcdefABCDEF"))
    assert seen == 1


def test_many_errors_of_a_kind_are_counted_and_not_kept() -> None:
    lines = b"".join(b"RuntimeError: number %d\n" % n for n in range(5000))
    facts = read(iter([lines])).facts
    assert len(facts.sightings) == 2
    assert facts.sightings[0].line == 1
    assert (facts.sightings[1].line, facts.sightings[1].count) == (5000, 4999)
