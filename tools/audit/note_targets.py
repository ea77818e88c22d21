"""Notes between launchers, through the rendezvous store: views, captures, steps, orders."""

from __future__ import annotations

import contextlib
import json
import struct
import zlib
from pathlib import Path

import numpy as np

from relkit.errors import BadDump
from relkit.hang.model import RankView
from relkit.hook.reader import read_state
from relkit.launch.hang import codec
from relkit.launch.job import session_key
from relkit.launch.job.exchange import ExchangeBroken, StoreMailbox
from relkit.launch.netcheck.node_info import NodeInfo, decode_node_info
from relkit.launch.recovery import persist_host
from relkit.launch.straggler.exclusion import Order, decode_order
from relkit.stacks.model import Frame, RankDump, ThreadStack
from relkit.straggler.transport import step_codec
from relkit.straggler.transport.step_codec import Note
from tests.unit.hook.test_reader import blank, put, slot
from tests.unit.straggler.step_records import records
from tools.audit.target import Run, Target

_KEY = bytes(range(32))


def _views(folder: Path) -> list[bytes]:
    path = folder / "9.rkhook"
    busy = blank()
    put(busy, "slots_at", slot(range(3), flight=7))
    path.touch(mode=0o600)
    path.write_bytes(busy)
    hook = read_state(path)
    dump = RankDump(0, 2, 9, "S", (ThreadStack(9, "python", (Frame("f", "a.py:1"),)),))
    views = [RankView(0, "n", 9, True, "S", hook=hook), RankView(1, "n", 10, False, exit_code=-9)]
    packed = (
        codec.encode_views(views, {"extra": 1}),
        codec.encode_capture(views, [dump], 1 << 20)[0],
    )
    return [zlib.decompress(data) for data in packed]


def _read_views(_: Path) -> Run:
    def run(data: bytes) -> None:
        with contextlib.suppress(BadDump):
            codec.decode_views(data)
        codec.decode_capture(data)

    return run


def _steps(_: Path) -> list[bytes]:
    made = []
    for each in (records(range(3), 2), records(range(1), 1)):
        note = Note(1, tuple(each), ("a note",))
        made.append(_unpacked(step_codec.encode(note, "host")))
    return made


def _unpacked(data: bytes) -> bytes:
    text_bytes, _ = struct.unpack_from("<II", data, 4)
    return struct.pack("<I", text_bytes) + zlib.decompress(data[12:])


def _packed(data: bytes) -> bytes:
    """The inverse of _unpacked, so that changes are to what is inside."""
    body = zlib.compress(data[4:], 1)
    return step_codec._MAGIC + data[:4].ljust(4, b"\0") + struct.pack("<I", len(body)) + body


def _read_steps(_: Path) -> Run:
    def run(data: bytes) -> None:
        note = step_codec.decode(data, 4)
        for record in note.records:
            assert np.isfinite(record.begin_ns)

    return run


def _orders(_: Path) -> list[bytes]:
    info = NodeInfo(1, "n1", "10.0.0.1", "check", True, "")
    return [
        info.encode(),
        Order(1, "slow").encode(),
        json.dumps(["10.0.0.1:80", "00ff"]).encode(),
        session_key._seal(_KEY, "node-1", {"a": 1}),
    ]


def _read_orders(_: Path) -> Run:
    def run(data: bytes) -> None:
        decode_node_info(data, 1)
        decode_order(data)
        for key in (b"", _KEY):
            session_key._open(key, "node-1", data)
        with contextlib.suppress(ExchangeBroken):
            persist_host._controller_note(data)

    return run


class _Store:
    """A store whose every answer is a piece of the input."""

    def __init__(self) -> None:
        self.hold(b"")

    def hold(self, data: bytes) -> None:
        """Answer with pieces of this from now on."""
        self._pieces = data.split(b"\0\0")
        self._next = 0

    def check(self, keys: list[str]) -> bool:
        """Of torch's interface."""
        return len(keys) < 100

    def get(self, _: str) -> bytes:
        """Of torch's interface."""
        self._next += 1
        return self._pieces[(self._next - 1) % len(self._pieces)]


def _notes(_: Path) -> list[bytes]:
    data = b"x" * 20
    return [
        b"1 20 %d\n" % zlib.crc32(data) + data,
        b"2 20 %d\nxxxxxxxxxx" % zlib.crc32(data) + b"\0\0xxxxxxxxxx",
    ]


def _read_notes(_: Path) -> Run:
    # One for all inputs: each has a thread of its own.
    store = _Store()
    mailbox = StoreMailbox(store, 0, 2, "")  # type: ignore[arg-type]

    def run(data: bytes) -> None:
        store.hold(data)
        mailbox.get("key")

    return run


TARGETS = (
    Target("views", "launchers' views and captures", _views, _read_views, "json", zlib.compress),
    Target("steps", "launchers' notes of steps", _steps, _read_steps, "bytes", _packed),
    Target("orders", "launchers' node infos and orders", _orders, _read_orders, "json"),
    Target("notes", "parts of notes in the store", _notes, _read_notes, "text"),
)
