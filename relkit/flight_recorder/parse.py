"""Plain data -> FlightDump; every field is checked, as the file may come from anywhere."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from relkit.flight_recorder.model import FlightDump, FlightEntry
from relkit.stacks.model import Frame
from relkit.text.foreign_json import parse_json
from relkit.text.whole_number import whole_number

_MAX_RANKS = 1 << 20
_MAX_ENTRIES = 500_000
_MAX_FRAMES = 32
# Only the newest entries keep their frames: a small pickle can name one list a million times.
_WITH_FRAMES = 1000
_MAX_DIMENSIONS = 64
_MAX_TEXT = 1024
_MAX_NUMBER = 1 << 62
_SEND = re.compile(r"(send|recv)\s+(\d{1,9})(->|<-)(\d{1,9})")
_WIDTHS = {
    "bool": 1, "byte": 1, "char": 1, "uint8": 1, "int8": 1, "short": 2, "int16": 2, "uint16": 2,
    "half": 2, "float16": 2, "bfloat16": 2, "int": 4, "int32": 4, "uint32": 4, "float": 4,
    "float32": 4, "long": 8, "int64": 8, "uint64": 8, "double": 8, "float64": 8,
    "complexhalf": 4, "complexfloat": 8, "complex64": 8, "complexdouble": 16, "complex128": 16,
}  # fmt: skip


def parse_dump(plain: object, rank: int) -> FlightDump:
    """One rank's dump.

    Args:
        plain: what `read_plain` gave; rank: whose it is.

    Raises:
        ValueError: it is not a flight recorder's; the text says what is wrong with it.
    """
    document = _mapping(plain, "its content")
    if "entries" not in document:
        raise ValueError("it has no entries")
    groups, descriptions = _groups(document.get("pg_config"))
    listed = _sequence(document["entries"], "entries")
    if len(listed) > _MAX_ENTRIES:
        raise ValueError(f"it has {len(listed)} entries")
    entries = [
        _entry(_mapping(entry, f"entry {number}"), number, number >= len(listed) - _WITH_FRAMES)
        for number, entry in enumerate(listed)
    ]
    return FlightDump(
        rank=rank,
        version=_text(document.get("version", "")),
        groups=groups,
        descriptions=descriptions,
        entries=tuple(sorted(entries, key=lambda entry: entry.record_id)),
    )


def _groups(config: object) -> tuple[dict[str, tuple[int, ...]], dict[str, str]]:
    groups: dict[str, tuple[int, ...]] = {}
    descriptions: dict[str, str] = {}
    for key, value in _mapping(config or {}, "pg_config").items():
        group = _mapping(value, "a group of pg_config")
        name = _text(group.get("name", key))
        listed = group.get("ranks", ())
        # JSON in a text, since version 2.0.
        ranks = parse_json(listed) if isinstance(listed, str) else listed
        members = tuple(
            _number(member, "a rank of a group", _MAX_RANKS)
            for member in _sequence(ranks, "the ranks of a group")
        )
        if name and members and len(set(members)) == len(members):
            groups[name] = members
            descriptions[name] = _text(group.get("desc", ""))
    return groups, descriptions


def _entry(plain: Mapping[Any, Any], number: int, with_frames: bool) -> FlightEntry:
    backend, _, call = _text(plain.get("profiling_name", "")).rpartition(":")
    transfer = _SEND.fullmatch(call)
    source = destination = -1
    if transfer:
        left, right = int(transfer[2]), int(transfer[4])
        source, destination = (left, right) if transfer[3] == "->" else (right, left)
    name = transfer[1] if transfer else call.partition(" ")[0]
    is_p2p = bool(plain.get("is_p2p")) or transfer is not None
    group = _sequence(plain.get("process_group", ("", "")), "a process_group")
    state = _text(plain.get("state", ""))
    if not name or state not in ("scheduled", "started", "completed"):
        raise ValueError(f"entry {number} has the name {name!r} and the state {state!r}")
    return FlightEntry(
        record_id=_number(plain.get("record_id", number), "a record_id"),
        group=_text(group[0]) if group else "",
        description=_text(group[1]) if len(group) > 1 else "",
        backend=backend,
        name=name,
        source=source,
        destination=destination,
        seq=_number(plain.get("p2p_seq_id" if is_p2p else "collective_seq_id", 0), "a seq_id"),
        is_p2p=is_p2p,
        size_bytes=max(_size_bytes(plain, "input"), _size_bytes(plain, "output")),
        dtypes=tuple(sorted({*_dtypes(plain, "input"), *_dtypes(plain, "output")})),
        state=state,
        retired=plain.get("retired") is True,
        created_ns=_number(plain.get("time_created_ns"), "a time"),
        started_ns=_number(plain.get("time_discovered_started_ns"), "a time"),
        completed_ns=_number(plain.get("time_discovered_completed_ns"), "a time"),
        timeout_s=_number(plain.get("timeout_ms"), "a timeout") / 1000,
        frames=_frames(plain.get("frames")) if with_frames else (),
    )


def _dtypes(plain: Mapping[Any, Any], side: str) -> list[str]:
    given = plain.get(f"{side}_dtypes") or ()
    # One text in old versions.
    listed = [given] if isinstance(given, str) else _sequence(given, "dtypes")
    return [text for dtype in listed if (text := _text(dtype))]


def _size_bytes(plain: Mapping[Any, Any], side: str) -> int:
    sizes = _sequence(plain.get(f"{side}_sizes") or (), "sizes")
    dtypes = _dtypes(plain, side)
    total = 0
    for number, shape in enumerate(sizes):
        # An empty shape is a scalar's, and also what an operation without a tensor has.
        dimensions = [_number(d, "a size") for d in _sequence(shape, "a shape")[:_MAX_DIMENSIONS]]
        dtype = dtypes[min(number, len(dtypes) - 1)] if dtypes else ""
        width = _WIDTHS.get(dtype.lower().removeprefix("torch."), 1 if "8" in dtype else 4)
        total += math.prod(dimensions) * width if dimensions or dtype else 0
    return min(total, _MAX_NUMBER)


def _frames(plain: object) -> tuple[Frame, ...]:
    frames = []
    for frame in _sequence(plain or (), "frames")[:_MAX_FRAMES]:
        known = _mapping(frame, "a frame")
        file, line = _text(known.get("filename", "")), _number(known.get("line"), "a line")
        frames.append(Frame(_text(known.get("name", "")), f"{file}:{line}" if line else file))
    return tuple(frames)


def _mapping(plain: object, what: str) -> Mapping[Any, Any]:
    if not isinstance(plain, dict):
        raise ValueError(f"{what} is not a dictionary")
    return plain


def _sequence(plain: object, what: str) -> Sequence[Any]:
    if not isinstance(plain, (list, tuple)):
        raise ValueError(f"{what}: not a list")
    return plain


def _text(plain: object) -> str:
    """Text, or a number as such: old versions have numbers for names."""
    if isinstance(plain, (int, float)) and not isinstance(plain, bool):
        return str(plain)[:_MAX_TEXT]
    return plain[:_MAX_TEXT] if isinstance(plain, str) else ""


def _number(plain: object, what: str, limit: int = _MAX_NUMBER) -> int:
    """A number that is not negative, also as text; 0 for None."""
    if plain is None:
        return 0
    number = whole_number(plain) if isinstance(plain, str) else plain
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < limit:
        raise ValueError(f"{what} is {str(plain)[:40]!r}")
    return number
