"""What the fuzzers have found stays mended: each input again, through the fuzzer that found it."""

from __future__ import annotations

import io
import json
import time
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch

from relkit.errors import BadDump, UsageProblem
from relkit.fleet import wire
from relkit.hosts import read_nodes
from relkit.launch.hang import codec
from relkit.text.foreign_json import parse_json
from tools.audit.child import attempt
from tools.audit.targets import TARGETS


def manifest(size: object) -> bytes:
    files = [{"name": "a.pt", "size_bytes": size, "sha256": ""}]
    plain = {"schema": "relkit.checkpoint/1", "step": 5, "facts": {}, "files": files}
    return json.dumps(plain).encode()


def array_with_header(header: bytes) -> bytes:
    out = io.BytesIO()
    np.save(out, np.arange(12).reshape(6, 2))
    return out.getvalue()[:8] + len(header).to_bytes(2, "little") + header


def checkpoint(value: object) -> bytes:
    out = io.BytesIO()
    torch.save(value, out)
    return out.getvalue()


def cut_pickle() -> bytes:
    """A checkpoint whose pickle ends within a text."""
    out = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(checkpoint({"a": 1}))) as whole,
        zipfile.ZipFile(out, "w") as made,
    ):
        for name in whole.namelist():
            data = whole.read(name)
            made.writestr(name, b"\x80\x02X\x05\0" if name.endswith("data.pkl") else data)
    return out.getvalue()


HOLDS_ITSELF: list[object] = []
HOLDS_ITSELF.append(HOLDS_ITSELF)
PARTS = [
    {"node": "a", "part": '{"x": "\ud800', "last": False},
    {"node": "a", "part": '"}', "last": 1},
]
FOUND = [
    ("hosts", b"n[-0-99999999999]"),
    ("hosts", b"n[1-2-9999999999]"),
    ("manifests", manifest(float("inf"))),
    ("manifests", b"[" * 100_000),
    ("samples", array_with_header(b"{'descr': ((((\n")),
    ("samples", array_with_header(b"{'descr': '''\n")),
    ("configs", b"a: " + b"[" * 3000),
    ("configs", b"a: 2001-99-99"),
    ("orders", json.dumps({"body": "{}", "proof": "\ud800"}).encode()),
    ("orders", json.dumps({"body": '{"\ud800": 1}', "proof": "x"}).encode()),
    ("orders", b"[1]"),
    ("tensors", cut_pickle()),
    ("tensors", checkpoint(HOLDS_ITSELF)),
    ("requests", b"\n".join(json.dumps(part).encode() for part in PARTS)),
]


@pytest.mark.parametrize(("name", "data"), FOUND, ids=[name for name, _ in FOUND])
def test_an_input_that_was_a_finding_no_longer_is(name: str, data: bytes, tmp_path: Path) -> None:
    assert attempt(TARGETS[name].open(tmp_path), data) == ""


@pytest.mark.parametrize("text", ["n[-0-999999999]", "n[1-2-9]", "n[1/2]", "n[1,]", "n[-1]"])
def test_only_numbers_and_ranges_stand_in_the_brackets_of_a_node_set(text: str) -> None:
    with pytest.raises(UsageProblem, match="is not a node set"):
        read_nodes(text)


def test_ranges_with_steps_are_node_sets() -> None:
    assert [spec.name for spec in read_nodes("n[01-05/2,09]").nodes] == ["n01", "n03", "n05", "n09"]


def feed_parts(reassembler: wire.Reassembler, node: str, part: str) -> None:
    for _ in range(2_000_000):
        reassembler.feed({"node": node, "part": part, "last": False})


@pytest.mark.timeout(60)
def test_a_message_in_a_million_parts_is_refused_soon() -> None:
    reassembler = wire.Reassembler()
    began_s = time.process_time()
    for node, part in (("a", "x"), ("b", "")):
        with pytest.raises(wire.BadLine, match="more than 1048576 bytes"):
            feed_parts(reassembler, node, part)
    assert time.process_time() - began_s < 20


@pytest.mark.parametrize("text", [b'{"a":[' + b"[]," * 1_500_000 + b"0]}", b" " * (129 << 20)])
def test_a_small_note_that_becomes_gigabytes_is_refused(text: bytes) -> None:
    with pytest.raises(BadDump, match="message between nodes"):
        codec.unpack(zlib.compress(text, 1))


@pytest.mark.parametrize("data", [b"[" * 100_000, '{"a":' * 100_000, b"", b"\xff", b"{", "nul"])
def test_whatever_is_no_json_is_a_value_error(data: bytes | str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_json(data)
