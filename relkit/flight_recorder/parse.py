"""Plain data -> FlightDump; every field is checked, as the file may come from anywhere."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from relkit.flight_recorder.model import FlightDump, FlightEntry
from relkit.stacks.model import Frame
from relkit.text.foreign_json import parse_json
from relkit.text.printable import printable_line
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


class NoOperations(ValueError):
    """A document of a recorder's that holds no list of operations, not even an empty one."""


def parse_dump(plain: object, rank: int) -> FlightDump:
    """One rank's dump.

    Args:
        plain: what `read_plain` gave; rank: whose it is.

    Raises:
        ValueError: it is not a flight recorder's; the text says what is wrong with it.
    """
    document = _mapping(plain, "its content")
    if "entries" not in document:
        raise NoOperations(f"it has no entries{_reason(document)}")
    groups, descriptions = _groups(document.get("pg_config"))
    listed = _sequence(document["entries"], "entries")
    if len(listed) > _MAX_ENTRIES:
        raise ValueError(f"it has {len(listed)} entries")
    entries = [
        _entry(_mapping(entry, f"entry {number}"), number, number >= len(listed) - _WITH_FRAMES)
        for number, entry in enumerate(listed)
    ]
    entries.sort(key=lambda entry: entry.record_id)
    version = _text(document.get("version", ""))
    if version.startswith("1."):
        entries = _numbered_apart(entries)
    enqueued, completed = _counts(document.get("pg_status"), document.get("pg_config"), listed)
    return FlightDump(
        rank=rank,
        version=version,
        groups=groups,
        descriptions=descriptions,
        entries=tuple(entries),
        enqueued=enqueued,
        completed=completed,
    )


def _numbered_apart(entries: list[FlightEntry]) -> list[FlightEntry]:
    """The same with collectives numbered alone: versions 1.x count sends and receives with them.

    Raises:
        ValueError: there are both in a group, and the first ones are not there to be counted.
    """
    mixed = {e.group for e in entries if e.is_p2p} & {e.group for e in entries if not e.is_p2p}
    if not mixed:
        return entries
    if entries[0].record_id > 1:
        raise ValueError(
            "version 1.x of the recorder numbers sends and collectives together, and its first "
            "operations are overwritten: torch 2.4 is needed"
        )
    seen: Counter[str] = Counter()
    apart = []
    for entry in entries:
        if entry.group in mixed and not entry.is_p2p:
            seen[entry.group] += 1
            entry = replace(entry, seq=seen[entry.group])
        apart.append(entry)
    return apart


def _reason(document: Mapping[Any, Any]) -> str:
    """What a dump without operations says instead."""
    given = next((document[key] for key in ("reason", "error", "message") if key in document), "")
    if not isinstance(given, str) or not given:
        return ""
    return f', only the reason "{printable_line(given)[:120]}"'


def _counts(
    status: object, config: object, listed: Sequence[Any]
) -> tuple[dict[str, int], dict[str, int]]:
    """How far the rank has come in each group, by the recorder's own counts: called, completed."""
    by_id = _mapping(status or {}, "pg_status")
    names = _names_of_ids([_text(key) for key in by_id], config, listed)
    enqueued: dict[str, int] = {}
    completed: dict[str, int] = {}
    for key, value in by_id.items():
        name = names.get(_text(key))
        if name is None or not isinstance(value, dict):
            continue
        for counts, field in (
            (enqueued, "last_enqueued_collective"),
            (completed, "last_completed_collective"),
        ):
            number = whole_number(str(value.get(field, -1)))
            if number is not None and 0 < number < _MAX_NUMBER:
                counts[name] = number
    return enqueued, completed


def _names_of_ids(ids: Sequence[str], config: object, listed: Sequence[Any]) -> dict[str, str]:
    """The names of groups by the numbers that pg_status has for them, as far as they are known.

    Entries have both. Where as many groups are listed as counted, both lists are in the order in
    which the rank made them; that counts only where no entry contradicts it.
    """
    pairs = {
        (_text(entry["pg_id"]), _text(named[0]))
        for entry in listed
        if "pg_id" in entry
        and isinstance(named := entry.get("process_group"), (list, tuple))
        and named
    }
    # gloo's entries may all have one number.
    count = Counter(number for number, _ in pairs)
    known = {number: name for number, name in pairs if count[number] == 1}
    names = [_text(name) for name in _mapping(config or {}, "pg_config")]
    if len(names) == len(ids) and all(text.isdecimal() for text in (*names, *ids)):
        paired = dict(zip(sorted(ids, key=int), sorted(names, key=int), strict=True))
        if all(paired.get(key) == name for key, name in pairs):
            return paired
    return known


def _groups(config: object) -> tuple[dict[str, tuple[int, ...]], dict[str, str]]:
    groups: dict[str, tuple[int, ...]] = {}
    descriptions: dict[str, str] = {}
    for key, value in _mapping(config or {}, "pg_config").items():
        group = _mapping(value, "a group of pg_config")
        name = _text(group.get("name", key))
        listed = group.get("ranks", ())
        ranks = _listed_ranks(listed) if isinstance(listed, str) else listed
        members = tuple(
            _number(member, "a rank of a group", _MAX_RANKS)
            for member in _sequence(ranks, "the ranks of a group")
        )
        if name and members and len(set(members)) == len(members):
            groups[name] = members
            descriptions[name] = _text(group.get("desc", ""))
    return groups, descriptions


def _listed_ranks(text: str) -> Any:  # noqa: ANN401
    """Ranks as text: a list in JSON since version 2.0, numbers and commas alone of torchcomms."""
    return parse_json(text if text.lstrip().startswith("[") else f"[{text}]")


def _entry(plain: Mapping[Any, Any], number: int, with_frames: bool) -> FlightEntry:
    backend, _, call = _text(plain.get("profiling_name", "")).rpartition(":")
    transfer = _SEND.fullmatch(call)
    source = destination = -1
    if transfer:
        left, right = int(transfer[2]), int(transfer[4])
        source, destination = (left, right) if transfer[3] == "->" else (right, left)
    name = transfer[1] if transfer else call.partition(" ")[0]
    is_p2p = bool(plain.get("is_p2p")) or transfer is not None
    # Versions 1.x (torch 2.2 and 2.3) name no group, and have one number for all operations.
    group = _sequence(
        plain.get("process_group", (_text(plain.get("pg_id", "")), "")), "a process_group"
    )
    number_of = "p2p_seq_id" if is_p2p else "collective_seq_id"
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
        seq=_number(plain.get(number_of, plain.get("seq_id", 0)), "a seq_id"),
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
