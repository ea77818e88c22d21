"""Changes valid inputs into odd ones: their bits, values or archive members."""

from __future__ import annotations

import io
import json
import random
import zipfile
from collections.abc import Callable, Sequence
from typing import Any

from relkit.text.foreign_json import parse_json

MAX_BYTES = 1 << 20
_EDGES = (0, 1, 2, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF,
          (1 << 63) - 1, 1 << 63, (1 << 64) - 1)  # fmt: skip
_NUMBERS = ("-1", "0", "1e999", "-1e999", "NaN", "Infinity", "99999999999999999999", "1.5", "1e308",
            "2147483648", "9223372036854775808", "-9223372036854775809")  # fmt: skip
_TOKENS = (b"[", b"]", b"{", b"}", b'"', b"\\", b"\0", b"\n", b",", b":", b"=", b"/", b"..", b"@",
           b"%", b"#", b"\xff", b"\xc3\x28", b"\\ud800", b"\x1b[2J", b"null", b"[1-99999]",
           b"\xef\xbb\xbf", b"\xe2\x80\xae")  # fmt: skip
_DEEP = (b"[" * 3000, b'{"a":' * 2000, b"(" * 300)
_ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 1 << 31, 1 << 63, 1 << 70, -(1 << 63), 0.5, 1e308, float("nan"),
    float("inf"), -float("inf"), "", "\0", "\ud800", "../../etc", "\x1b[31m", [], {}, [[]],
    [None], {"": None}, "1", "nan", {"kind": "hello"},
)  # fmt: skip
# Costly to write and to read: tried now and then.
_LARGE: tuple[Any, ...] = (10**400, "x" * 5000, [0] * 3000)


def changed(chance: random.Random, seeds: Sequence[bytes], shape: str) -> bytes:
    """A new input, made of the seeds by one to a dozen changes."""
    data = chance.choice(seeds)
    times = 1 + min(chance.getrandbits(3), chance.getrandbits(3))
    if shape == "json" and chance.random() < 0.8:
        return _json(chance, data, times)[:MAX_BYTES]
    if shape == "zip" and chance.random() < 0.7:
        return _zip(chance, data, seeds, times)[:MAX_BYTES]
    change = _SHAPES[shape]
    for _ in range(times):
        data = change(chance, data, seeds)
    return data[:MAX_BYTES]


def _bytes(chance: random.Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    return chance.choice(_BYTE_CHANGES)(chance, data, seeds)


def _place(chance: random.Random, data: bytes) -> int:
    # Headers decide most, so that half of all changes are near the front.
    most = len(data) if chance.random() < 0.5 else min(len(data), 256)
    return chance.randrange(most + 1)


def _flip(chance: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    if not data:
        return b"\0"
    at = min(_place(chance, data), len(data) - 1)
    return data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]


def _number(chance: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    size = chance.choice((1, 2, 4, 4, 8, 8))
    edge = chance.choice(_EDGES) + chance.choice((-1, 0, 0, 1))
    value = (edge % (1 << 8 * size)).to_bytes(size, chance.choice(("little", "little", "big")))
    at = _place(chance, data)
    at -= at % size if chance.random() < 0.7 else 0
    return data[:at] + value + data[at + size :]


def _cut(chance: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    at = _place(chance, data)
    size = chance.choice((1, 2, 4, 16, 256, len(data)))
    return data[:at] + data[at + size :]


def _repeat(chance: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    at = _place(chance, data)
    part = data[at : at + chance.choice((1, 4, 32, 512))]
    return (data[:at] + part * chance.choice((1, 2, 16, 200)) + data[at:])[:MAX_BYTES]


def _insert(chance: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    at = _place(chance, data)
    kind = chance.random()
    new = chance.choice(_TOKENS if kind < 0.6 else _DEEP) if kind < 0.62 else chance.randbytes(8)
    return data[:at] + new + data[at:]


def _splice(chance: random.Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    other = chance.choice(seeds)
    return data[: _place(chance, data)] + other[_place(chance, other) :]


_BYTE_CHANGES: tuple[Callable[[random.Random, bytes, Sequence[bytes]], bytes], ...] = (
    _flip, _flip, _number, _number, _number, _cut, _repeat, _insert, _splice,
)  # fmt: skip


def _text(chance: random.Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    """As bytes, and numbers in words by others."""
    places = [at for at, byte in enumerate(data[:4096]) if 48 <= byte <= 57]
    if not places or chance.random() < 0.6:
        return _bytes(chance, data, seeds)
    at = end = chance.choice(places)
    while end < len(data) and 48 <= data[end] <= 57:
        end += 1
    return data[:at] + chance.choice(_NUMBERS).encode() + data[end:]


def _json(chance: random.Random, data: bytes, times: int) -> bytes:
    """Values of the document replaced, removed or repeated; one document a line, or one in all."""
    lines = data.split(b"\n")
    at = chance.randrange(len(lines))
    try:
        document = parse_json(lines[at])
    except ValueError:
        return _text(chance, data, [data])
    for _ in range(times):
        document = _replaced(chance, document)
    lines[at] = json.dumps(document).encode()
    if chance.random() < 0.2:
        lines[at] = _text(chance, lines[at], [data])
    return b"\n".join(lines)


def _odd(chance: random.Random) -> Any:  # noqa: ANN401
    value = chance.choice(_ODD if chance.random() < 0.97 else _LARGE)
    # A fresh one each time: a document must not hold itself.
    return type(value)(value) if isinstance(value, (list, dict)) else value


def _replaced(chance: random.Random, document: Any) -> Any:  # noqa: ANN401
    holder: Any = None
    key: Any = None
    value = document
    # Down a random way, to a random depth.
    while isinstance(value, (dict, list)) and value and (holder is None or chance.random() < 0.75):
        holder = value
        key = (
            chance.choice(list(value)) if isinstance(value, dict) else chance.randrange(len(value))
        )
        value = holder[key]
    if holder is None or chance.random() < 0.02:
        return _odd(chance)
    match chance.randrange(8):
        case 0:
            del holder[key]
        case 1 if isinstance(holder, dict):
            holder[chance.choice(("", "x", "kind", "0", "\0", str(key)[:-1]))] = value
        case 1 if isinstance(holder, list):
            holder += [value] * chance.choice((1, 1, 10, 10, 300))
        case 2 if isinstance(value, (int, float)) and not isinstance(value, bool):
            holder[key] = chance.choice((-value, value + 1, value - 1, value * 1000, str(value)))
        case _:
            holder[key] = _odd(chance)
    return document


def _zip(chance: random.Random, data: bytes, seeds: Sequence[bytes], times: int) -> bytes:
    """Members changed, and the archive written anew, so that its checksums are right."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    for _ in range(times):
        name = chance.choice(list(members))
        members[name] = _bytes(chance, members[name], seeds)
    out = io.BytesIO()
    compression = chance.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
    with zipfile.ZipFile(out, "w", compression) as new:
        for name, content in members.items():
            new.writestr(zipfile.ZipInfo(name), content)
    whole = out.getvalue()
    return _bytes(chance, whole, seeds) if chance.random() < 0.2 else whole


_SHAPES = {"bytes": _bytes, "text": _text, "json": _text, "zip": _bytes}
