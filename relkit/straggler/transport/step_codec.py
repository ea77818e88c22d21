"""Finished steps as bytes, for the way from a node to the one that scores."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from relkit.errors import BadDump
from relkit.straggler.edge_traffic import EdgeTraffic
from relkit.straggler.host_load import HostLoad
from relkit.straggler.model import PARTS, PartTimes
from relkit.straggler.step_record import COLLECTIVE, OPERATIONS, StepRecord, no_collectives
from relkit.text.foreign_json import parse_json

# What a node may put into the job's store at once. Local times are some 100 bytes a rank and step;
# the collectives of as many steps go along as fit.
NOTE_BYTES = 32 << 10
_LIMIT_BYTES = 64 << 20
_MAX_RECORDS = 100_000
_MAX_GROUPS = 4096
_TEXT_LIMIT = 256
_HEAD = struct.Struct("<4sII")
_MAGIC = b"RKS3"

_ROW = np.dtype(
    [
        ("rank", "<i4"), ("key", "<i4"), ("groups", "<i4"), ("collectives", "<i4"),
        ("step", "<i8"), ("begin_ns", "<i8"), ("end_ns", "<i8"), ("exact", "<i4"),
        ("parts", "<f4", len(PARTS)),
    ]
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Note:
    """What one node has to say since its last note.

    Args:
        number: of the note, counted from 0; records: finished steps; notes: what was not seen.
        sent: to other hosts; host: who says so; load: of that host, None = not known.
    """

    number: int
    records: tuple[StepRecord, ...]
    notes: tuple[str, ...] = ()
    sent: tuple[EdgeTraffic, ...] = ()
    host: str = ""
    load: HostLoad | None = None


def encode(note: Note, host: str, budget_bytes: int = NOTE_BYTES) -> bytes:
    """A note as bytes.

    Args:
        note: its records are of one host; host: that host's name.
        budget_bytes: beyond that, collectives of some steps are left out (local times never are).
    """
    keys: dict[str, int] = {}
    layouts: dict[tuple[tuple[str, int, int], ...], int] = {}
    rows = np.zeros(len(note.records), _ROW)
    kept = _steps_that_fit(note.records, budget_bytes - rows.nbytes // 2)
    blocks: list[npt.NDArray[Any]] = []
    for record, row in zip(note.records, rows, strict=True):
        block = record.collectives if record.step in kept else record.collectives[:0]
        for name in ("rank", "step", "begin_ns", "end_ns", "exact", "parts"):
            row[name] = getattr(record, name)
        row["key"] = keys.setdefault(record.peers_key, len(keys))
        row["groups"] = layouts.setdefault(record.groups, len(layouts))
        row["collectives"] = len(block)
        blocks.append(block)
    head = {
        "number": note.number, "host": host, "keys": list(keys), "notes": list(note.notes),
        "groups": [[list(group) for group in groups] for groups in layouts], "rows": len(rows),
        "sent": [astuple(sample) for sample in note.sent],
        "load": astuple(note.load) if note.load is not None else None,
    }  # fmt: skip
    text = json.dumps(head, separators=(",", ":")).encode()
    collectives = np.concatenate(blocks) if blocks else no_collectives()
    body = zlib.compress(text + rows.tobytes() + collectives.astype(COLLECTIVE).tobytes(), 1)
    return _HEAD.pack(_MAGIC, len(text), len(body)) + body


def _steps_that_fit(records: Sequence[StepRecord], budget_bytes: int) -> set[int]:
    """The steps whose collectives go along."""
    size_bytes: dict[int, int] = {}
    for record in records:
        # zlib takes about two thirds off: times grow evenly, the rest repeats.
        size_bytes[record.step] = size_bytes.get(record.step, 0) + record.collectives.nbytes // 3
    kept: set[int] = set()
    # Who came late is known only where all nodes send the same steps: those that a high power of
    # two divides go first, then the newest.
    for step in sorted(
        size_bytes, key=lambda step: (-(step & -step) if step else -(1 << 62), -step)
    ):
        budget_bytes -= size_bytes[step]
        if budget_bytes < 0:
            break
        kept.add(step)
    return kept


def decode(data: bytes, world_size: int) -> Note:
    """The inverse of encode(); nothing in it is believed that does not fit.

    Raises:
        BadDump: not one of ours.
    """
    try:
        return _decode(data, world_size)
    except (struct.error, zlib.error, ValueError, KeyError, TypeError, IndexError) as error:
        raise BadDump(f"a node's steps cannot be read: {error!r:.200}") from error


def _decode(data: bytes, world_size: int) -> Note:
    magic, text_bytes, body_bytes = _HEAD.unpack_from(data)
    if magic != _MAGIC or len(data) != _HEAD.size + body_bytes:
        raise ValueError("not a note of steps")
    engine = zlib.decompressobj()
    raw = engine.decompress(data[_HEAD.size :], _LIMIT_BYTES)
    if engine.unconsumed_tail or not engine.eof:
        raise ValueError("larger than any note, or cut short")
    head = parse_json(raw[:text_bytes])
    count, number = _whole(head["rows"], _MAX_RECORDS), _whole(head["number"], 1 << 62)
    rows = np.frombuffer(raw, _ROW, count, text_bytes)
    collectives = np.frombuffer(raw, COLLECTIVE, -1, text_bytes + rows.nbytes)
    groups = [
        tuple((_text(name), _whole(size, 1 << 31), _whole(rank, 1 << 31))
              for name, size, rank in layout[:_MAX_GROUPS])
        for layout in head["groups"]
    ]  # fmt: skip
    keys = [_text(key) for key in head["keys"]]
    host = _text(head["host"])
    if len(rows) and not (
        (rows["rank"] >= 0).all()
        and (rows["rank"] < world_size).all()
        and (rows["collectives"] >= 0).all()
        and int(rows["collectives"].sum()) == len(collectives)
        and (rows["key"] >= 0).all()
        and (rows["groups"] >= 0).all()
        and (rows["end_ns"] >= rows["begin_ns"]).all()
        and not np.isinf(rows["parts"]).any()
    ):
        raise ValueError("rows that do not fit")
    ends = np.cumsum(rows["collectives"])
    records = []
    for row, end in zip(rows, ends.tolist(), strict=True):
        mine = collectives[end - int(row["collectives"]) : end]
        layout = groups[int(row["groups"])]
        if len(mine) and not (
            int(mine["communicator"].min()) >= 0
            and int(mine["communicator"].max()) < max(1, len(layout))
            and int(mine["operation"].min()) >= 0
            and int(mine["operation"].max()) < len(OPERATIONS)
        ):
            raise ValueError("collectives that do not fit")
        records.append(
            StepRecord(
                rank=int(row["rank"]), host=host, peers_key=keys[int(row["key"])],
                step=int(row["step"]), exact=bool(row["exact"]), begin_ns=int(row["begin_ns"]),
                end_ns=int(row["end_ns"]), parts=PartTimes._make(row["parts"].tolist()),
                collectives=mine, groups=layout,
            )
        )  # fmt: skip
    notes = tuple(_text(each) for each in head["notes"][:_TEXT_LIMIT])
    sent = tuple(_sent(each) for each in head["sent"][:_MAX_GROUPS])
    return Note(number, tuple(records), notes, sent, host, _load(head["load"]))


def _sent(plain: object) -> EdgeTraffic:
    if not isinstance(plain, list):
        raise TypeError("no list of what was sent")
    here, there, acked_bytes, busy_s, retransmits, rtt_s = plain
    most = 1 << 60
    return EdgeTraffic(
        _text(here), _text(there), _whole(acked_bytes, most), _duration(busy_s),
        _whole(retransmits, most), _duration(rtt_s),
    )  # fmt: skip


def _load(plain: object) -> HostLoad | None:
    if plain is None:
        return None
    if not isinstance(plain, list):
        raise TypeError("no load of a host")
    cores, busy, own = plain
    return HostLoad(_whole(cores, 1 << 20), _duration(busy), _duration(own))


def _duration(value: object) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0.0 <= value <= 1e9:
        raise ValueError(f"{value!r:.50} is no time")
    return float(value)


def _whole(value: object, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise ValueError(f"{value!r:.50} is no such number")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.50} is no text")
    return value[:_TEXT_LIMIT] if len(value) > _TEXT_LIMIT else value
