"""Files that were made to cost time or memory cost no more than their size."""

from __future__ import annotations

import gzip
import io
import re
from pathlib import Path

import pytest

from relkit.why import candidates, launcher_text, log_reader
from relkit.why.candidates import Scanner, progress_in
from relkit.why.kinds import FileKind, sort_file
from relkit.why.log_reader import LogReader
from relkit.why.model import LogFacts, Speaker
from relkit.why.packed.text_source import Pieces
from relkit.why.rules.bounded import bounded
from relkit.why.rules.line_rules import LINE_RULES
from relkit.why.scheduler_text import read_pod
from relkit.why.speakers import Prefixes


def read(data: bytes) -> tuple[LogReader, LogFacts]:
    reader = LogReader(Path("job.log"), Speaker(), Prefixes())
    return reader, reader.read([data])


def test_nothing_in_a_rule_repeats_without_end() -> None:
    assert bounded(r"a.*b\w+c\.*") == r"a.{0,240}b\w{1,40}c\.*"
    endless = re.compile(r"(?<!\\)\.[*+]|\\[wdS][*+]")
    assert [
        rule.pattern.pattern for rule in LINE_RULES if endless.search(rule.pattern.pattern)
    ] == []


def test_a_line_that_repeats_the_words_of_a_rule_is_read() -> None:
    """It took 11 s a line before."""
    read(b"unable compile " * 4000 + b"error\n")


def test_lines_without_end_in_small_files_are_read() -> None:
    """The square of their length is more than can be waited for."""
    blanks = " " * 1_000_000
    list(read_pod([f"  Normal x{blanks}x", f"  Reason: x{blanks}x"], Path("pod.txt")))
    assert sort_file(b"\n" * 65_000 + b"x", b"\n" * 65_000 + b"x").kind is FileKind.LOG
    read(f"x FAILED\n time : x{blanks}x\n".encode())


def test_a_file_of_very_many_packed_parts_comes_in_few_pieces() -> None:
    data = gzip.compress(b"x") * 20_000 + gzip.compress(b"\nend\n")
    pieces = list(Pieces(io.BytesIO(data[4096:]), data[:4096]))
    assert len(pieces) < 5
    assert b"".join(pieces) == b"x" * 20_000 + b"\nend\n"


def test_very_many_ranks_and_ends_are_not_all_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_reader, "_MAX_SIGHTINGS", 50)
    monkeypatch.setattr(launcher_text, "_MAX_ENDED", 50)
    errors = "".join(f"[rank{rank}]: ValueError: x\n" for rank in range(900))
    table = "x.py FAILED\n" + "".join(
        f"Failures:\n  time : 1\n  rank : {rank}\n  exitcode : 1 (pid: 5)\n" for rank in range(900)
    )
    reader, facts = read((errors + table).encode())
    assert len(facts.sightings) == len(facts.ended) == 50
    assert len(reader._kept) <= 50


def test_the_step_before_an_error_is_searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand ranks fail at once: each look took the 8 KiB before it."""
    searched = 0

    def counted(data: bytes) -> list[candidates.Progress]:
        nonlocal searched
        searched += len(data)
        return progress_in(data)

    monkeypatch.setattr(candidates, "progress_in", counted)
    lines = [
        f"[rank{rank}]: step 7 | loss 1.0\n[rank{rank}]: ValueError: x\n" for rank in range(999)
    ]
    data = "".join(lines).encode()
    _, facts = read(data)
    assert {each.step for each in facts.sightings} == {7}
    assert searched < 2 * len(data) + 20_000


@pytest.mark.parametrize("gap", [1, 300])
def test_a_step_far_before_an_error_is_not_its_own(gap: int) -> None:
    filler = b"nothing is said here, again and again\n" * gap
    data = b"step 5 | loss 1.0\nValueError: x\n" + filler + b"KeyError: y\n"
    scanner = Scanner([data])
    seen = {line.text: scanner.step_before(line.offset) for line in scanner if line.text}
    assert seen["ValueError: x"] == 5
    assert seen["KeyError: y"] == (5 if len(filler) < 8000 else -1)
