"""Damaged and hostile files: always BadDump with the file's name, never anything else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relkit.errors import BadDump
from relkit.stacks import dumpfile, wire
from relkit.stacks.dumpfile import decode, encode, read_dump
from relkit.stacks.model import RankDump, ThreadStack
from tests.unit.stacks.dump_strategies import damaged, dumps

NAME = "00000-00004.stacktrace"


def field(number: int, content: bytes) -> bytes:
    return wire.bytes_field(number, content)


def refusal(data: bytes) -> str:
    """Why decode() refuses the bytes; what it would say where it takes them."""
    try:
        decode(data, name=NAME)
    except BadDump as error:
        return str(error)
    return f"{NAME}: read"


DEEP = field(1, field(3, b"") * (dumpfile.MAX_FRAMES + 1))
MANY = field(1, field(3, b"") * dumpfile.MAX_FRAMES)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "empty"),
        (b"\x0a", "cut off"),
        (b"\x0a\x05abc", "wants 5 bytes"),
        (b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "wants 18446744073709551615 bytes"),
        (b"\x18" + b"\xff" * 9 + b"\x02", "longer than 64 bits"),
        (b"\x18" + b"\xff" * 11, "longer than 64 bits"),
        (b"\x0b", "wire type 3"),
        (b"\x0c", "wire type 4"),
        (b"\x0f", "wire type 7"),
        (b"\x02\x00", "field number 0"),
        (b"\x80\x80\x80\x80\x80\x01\x00", "field number"),
        (b"\x1d\x00\x00\x00\x00", "field 3 has wire type 5 instead of 0"),
        (b"\x08\x01", "field 1 has wire type 0 instead of 2"),
        (field(1, b"\x0a\x01x"), "field 1 has wire type 2 instead of 0"),
        (field(1, field(3, b"\x08\x01")), "field 1 has wire type 0 instead of 2"),
        (field(2, field(7, b"\x0a\x09x")), "wants 9 bytes"),
        (field(2, field(7, field(1002, b"x"))), "field 1002 has wire type 2 instead of 0"),
        (field(1000, b"\x3a"), "cut off"),
        (field(1000, field(7, b"n") * (dumpfile.MAX_TEXTS + 1)), "more than 4096 notes"),
        (field(1, b"") * (dumpfile.MAX_THREADS + 1), "more than 65536 threads"),
        (DEEP, "more than 65536 frames"),
        (MANY * 5, "more than 262144 frames in all"),
        (encode(RankDump(7, 4, 1, "S")), "rank 7 is outside its world of 4"),
        (b"\x20\xff\xff\xff\xff\x0f", "rank -1 of a world"),
    ],
)
def test_each_kind_of_damage_is_named(data: bytes, words: str) -> None:
    with pytest.raises(BadDump, match=f"^{NAME}: .*{words}"):
        decode(data, name=NAME)


def test_a_foreign_file_without_any_rank_is_refused() -> None:
    with pytest.raises(BadDump, match="which rank"):
        decode(b"\x18\x05", name="core.stacktrace")


def test_an_oversized_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / NAME
    with path.open("wb") as stream:
        stream.truncate(dumpfile.MAX_FILE_BYTES + 1)
    with pytest.raises(BadDump, match="larger than 64 MiB"):
        read_dump(path)


def test_a_pipe_or_folder_in_place_of_a_file_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "00000-00002.stacktrace")
    (tmp_path / "00001-00002.stacktrace").mkdir()
    for name in ("00000-00002.stacktrace", "00001-00002.stacktrace"):
        with pytest.raises(BadDump, match="not a regular file"):
            read_dump(tmp_path / name)
    with pytest.raises(BadDump, match="No such file"):
        read_dump(tmp_path / "00009-00010.stacktrace")


def test_bad_utf8_is_replaced() -> None:
    read = decode(field(11, b"S \xff") + field(1, field(2, b"\xc3")), name=NAME)
    assert read.process_state == "S �"
    assert read.native == (ThreadStack(0, "�", ()),)


@given(st.data(), dumps())
def test_damaged_files_read_or_raise_bad_dump(data: st.DataObject, dump: RankDump) -> None:
    broken = data.draw(damaged(encode(dump)))
    assert refusal(broken).startswith(NAME)


@given(st.binary(max_size=200))
def test_random_bytes_read_or_raise_bad_dump(data: bytes) -> None:
    assert refusal(data).startswith(NAME)


@given(dumps(), st.integers(0, 10_000))
def test_every_prefix_reads_or_raises_bad_dump(dump: RankDump, cut: int) -> None:
    whole = encode(dump)
    assert refusal(whole[: cut % len(whole)]).startswith(NAME)
