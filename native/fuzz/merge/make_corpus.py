"""Writes the seeds of the dump fuzzer: small files of every shape that the reader knows.

Usage: python native/fuzz/merge/make_corpus.py FOLDER
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from relkit.stacks import wire
from relkit.stacks.dumpfile import encode
from relkit.stacks.model import Frame, RankDump, Role, ThreadStack


def _thread(lwp: int, count: int, role: Role) -> ThreadStack:
    frames = tuple(Frame(f"f{i}", f"a.so:{i}", "m", "ab", i, i != 1) for i in range(count))
    return ThreadStack(lwp, "name", frames, role, "S", 9, True, True, "wait")


def seeds() -> Iterator[tuple[str, bytes]]:
    """(name, bytes) of each seed."""
    main, other = _thread(5, 3, Role.MAIN), _thread(6, 1, Role.OTHER)
    plain = RankDump(2, 4, 5, "S (sleeping)", (main, other), (main, other))
    yield "both", encode(plain)
    yield "native", encode(RankDump(0, 0, 1, "", (main, main)))
    yield "python", encode(RankDump(0, 0, 1, "", (), (other, other)))
    facts = RankDump(1, 2, 1, "D", (), (), "host", "job", 7, ("hook",), ("note", "note"), "{}")
    yield "facts", encode(facts)
    yield "outside", encode(RankDump(9, 4, 1, "R"))
    frame = wire.bytes_field(3, wire.text_field(1, "f") + wire.text_field(3, "#0 0x7f in f"))
    yield "foreign", wire.bytes_field(1, wire.number_field(1, 3) + frame) + b"\x18\x03\x20\x02"
    # Numbers and names behind the frames: legal, but such bytes must not pass for mere frames.
    late = frame + wire.number_field(1, 7) + wire.text_field(2, "late")
    yield "late_fields", wire.bytes_field(1, late) * 2
    yield "unknown_fields", b"\xb9\x3e" + b"\1" * 8 + b"\xb5\x3e" + b"\2" * 4 + b"\xa2\x3e\x01x"
    yield "group", b"\x0b\x0c"
    yield "long_varint", b"\x18" + b"\xff" * 9 + b"\x01"


def main() -> None:
    """Write them all."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in seeds():
        (folder / name).write_bytes(data)


if __name__ == "__main__":
    main()
