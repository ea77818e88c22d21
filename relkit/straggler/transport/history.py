"""A History in one .npz file: no pickle, texts as JSON, and strict about what it reads."""

from __future__ import annotations

import io
import json
import math
import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy

from relkit.errors import BadDump
from relkit.files.input_file import open_input
from relkit.output import write_atomic
from relkit.straggler.history_types import (
    STILL_HOLDS,
    History,
    LinkRow,
    RaisedVerdict,
    shapes,
    steps_to_keep,
)
from relkit.straggler.host_load import HostLoad
from relkit.straggler.model import PARTS, Cause, Subject, Verdict
from relkit.text.foreign_json import parse_json

__all__ = (
    "STILL_HOLDS", "History", "LinkRow", "RaisedVerdict", "load", "save",
    "steps_to_keep",
)  # fmt: skip

VERSION = 1
_LIMIT_BYTES = 256 << 20
_MAX_RANKS, _MAX_STEPS, _MAX_ITEMS = 1 << 17, 100_000, 200_000
_TEXT_LIMIT = 4000
_FAULTS = (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile, zlib.error,
           NotImplementedError, RuntimeError, OverflowError, MemoryError, SyntaxError,
           tokenize.TokenError)  # fmt: skip
_DTYPES = {"step_unix_s": "<f8", "peers": "<i4"}
_NEXT = "Name a history.npz that relkit wrote (TIMELINE/straggler/), or a job that still runs."


def save(history: History, path: Path) -> None:
    """Write it atomically, private to this user.

    Args:
        history: what to write; path: the file, whose folder must exist.

    Raises:
        UnwritablePath: the folder is missing, read-only or full.
    """
    text = json.dumps(_head(history), separators=(",", ":"))
    arrays: dict[str, Any] = {
        name: np.ascontiguousarray(getattr(history, name), _DTYPES.get(name, "<f4"))
        for name in shapes(history.world_size, history.steps)
    }
    buffer = io.BytesIO()
    np.savez(buffer, head=np.frombuffer(text.encode(), np.uint8), **arrays)
    write_atomic(path, buffer.getvalue())


def load(path: Path) -> History:
    """Read one back.

    Raises:
        BadDump: missing, truncated, hostile, of another version, or no history at all.
    """
    try:
        with open_input(path) as stream, zipfile.ZipFile(stream) as archive:
            if sum(entry.file_size for entry in archive.infolist()) > _LIMIT_BYTES:
                raise ValueError("larger than any history")
            return _decode(archive)
    except _FAULTS as error:
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise BadDump(f"{path}: no straggler history ({why})", next_step=_NEXT) from error


def _decode(archive: zipfile.ZipFile) -> History:
    head = parse_json(_array(archive, "head", "|u1", None).tobytes())
    if not isinstance(head, dict) or head.get("version") != VERSION:
        raise ValueError("another version")
    ranks, steps = _whole(head["world_size"]), _whole(head["steps"])
    if not (0 < ranks <= _MAX_RANKS and 0 <= steps <= _MAX_STEPS):
        raise ValueError(f"{ranks} ranks and {steps} steps")
    # Parts go by name: one that this version does not know is left out.
    names = [str(name) for name in _list(head["parts"])]
    expected = {**shapes(ranks, steps), "parts": (len(names), ranks, steps)}
    arrays = {
        name: _array(archive, name, _DTYPES.get(name, "<f4"), shape)
        for name, shape in expected.items()
    }
    known = np.full((len(PARTS), ranks, steps), np.nan, np.float32)
    for at, name in enumerate(PARTS):
        if name in names:
            known[at] = arrays["parts"][names.index(name)]
    return History(
        job_id=_text(head["job_id"]),
        world_size=ranks,
        first_step=_whole(head["first_step"]),
        steps=steps,
        hosts=tuple(_text(host) for host in _list(head["hosts"])),
        verdicts=tuple(_raised(raised) for raised in _list(head["verdicts"])),
        past=tuple(_raised(raised) for raised in _list(head["past"])),
        links=tuple(
            LinkRow(_text(a), _text(b), _number(ratio), _number(share), _number(lost_s))
            for a, b, ratio, share, lost_s in _list(head["links"])
        ),
        clock_offsets={
            _text(host): (_number(offset_s), _number(sigma_s))
            for host, offset_s, sigma_s in _list(head["clock_offsets"])
        },
        loads={
            _text(host): HostLoad(_whole(cores), _number(busy), _number(own))
            for host, cores, busy, own in _list(head.get("loads", []))
        },
        settings=_settings(head["settings"]),
        notes=tuple(_text(note) for note in _list(head["notes"])),
        ended=head["ended"] is True,
        **{**arrays, "parts": known},
    )


def _array(
    archive: zipfile.ZipFile, name: str, dtype: str, shape: tuple[int, ...] | None
) -> np.ndarray[Any, Any]:
    """One member, whose header must say what is expected; nothing in it is evaluated."""
    raw = archive.read(f"{name}.npy")
    stream = io.BytesIO(raw)
    if npy.read_magic(stream) != (1, 0):
        raise ValueError(f"{name} has an odd header")
    stored_shape, fortran, stored_dtype = npy.read_array_header_1_0(stream)
    if stored_dtype != np.dtype(dtype) or fortran or (shape is not None and stored_shape != shape):
        raise ValueError(f"{name} is {stored_shape} of {stored_dtype}")
    count = math.prod(stored_shape)
    if len(raw) - stream.tell() != count * stored_dtype.itemsize:
        raise ValueError(f"{name} is cut short")
    return np.frombuffer(raw, stored_dtype, count, stream.tell()).reshape(stored_shape)


def _head(history: History) -> dict[str, Any]:
    return {
        "version": VERSION,
        "job_id": history.job_id,
        "world_size": history.world_size,
        "first_step": history.first_step,
        "steps": history.steps,
        "parts": PARTS,
        "hosts": history.hosts,
        "verdicts": [_plain(raised) for raised in history.verdicts],
        "past": [_plain(raised) for raised in history.past],
        "links": [
            [x.source, x.target, _finite(x.ratio), _finite(x.evidence), _finite(x.lost_s)]
            for x in history.links
        ],
        "clock_offsets": [
            [host, _finite(offset_s), _finite(sigma_s)]
            for host, (offset_s, sigma_s) in history.clock_offsets.items()
        ],
        "loads": [
            [host, load.cores, _finite(load.busy_cores), _finite(load.own_cores)]
            for host, load in history.loads.items()
        ],
        "settings": dict(history.settings),
        "notes": history.notes,
        "ended": history.ended,
    }


def _plain(raised: RaisedVerdict) -> dict[str, Any]:
    verdict = raised.verdict
    return {
        "subject": verdict.subject.value, "cause": verdict.cause.value,
        "score": _finite(verdict.score),
        "confidence": _finite(verdict.confidence), "first_step": verdict.first_step,
        "cost_s": _finite(verdict.cost_s),
        "reasons": verdict.reasons, "rank": verdict.rank, "ends": verdict.ends,
        "raised_step": raised.raised_step, "ended_step": raised.ended_step,
    }  # fmt: skip


def _finite(value: float) -> float:
    """A job that runs is not to end for an infinite ratio; JSON has no such numbers."""
    return float(min(max(value, -1e300), 1e300)) if not math.isnan(value) else 0.0


def _raised(plain: Mapping[str, Any]) -> RaisedVerdict:
    return RaisedVerdict(
        Verdict(
            Subject(plain["subject"]),
            Cause(plain["cause"]),
            _number(plain["score"]),
            _number(plain["confidence"]),
            _whole(plain["first_step"]),
            _number(plain["cost_s"]),
            tuple(_text(reason) for reason in _list(plain["reasons"])),
            _whole(plain["rank"]),
            tuple(_text(end) for end in _list(plain["ends"])),
        ),
        _whole(plain["raised_step"]),
        _whole(plain["ended_step"]),
    )


def _settings(plain: object) -> dict[str, Any]:
    if not isinstance(plain, dict) or len(plain) > 1000:
        raise ValueError("odd settings")
    return {_text(key): value for key, value in plain.items()}


def _list(value: object) -> list[Any]:
    if not isinstance(value, list) or len(value) > _MAX_ITEMS:
        raise ValueError("a list is missing or too long")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("a text is missing")
    return value[:_TEXT_LIMIT]


def _whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) > 1 << 62:
        raise ValueError("a whole number is missing")
    return value


def _number(value: object) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise TypeError("a number is missing")
    if not math.isfinite(value):
        raise ValueError("a number is not finite")
    return float(value)
