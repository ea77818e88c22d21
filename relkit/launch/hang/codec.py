"""Rank views and dumps as bytes, for the way from one node's monitor to another's.

JSON under zlib: nothing that comes from the store is ever executed, and its size is bounded.
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from relkit.errors import BadDump
from relkit.hang.model import CpuUse, RankView, Sources
from relkit.hook.model import HookState
from relkit.post_mortem.model import evidence_from_json
from relkit.stacks.dumpfile import MAX_FILE_BYTES, decode, encode
from relkit.stacks.model import RankDump
from relkit.text.foreign_json import parse_json

LIMIT_BYTES = 128 << 20
# Python's objects take twenty times the room of the shortest JSON: their number is bounded, too.
MAX_VALUES = 2_000_000
# Finished operations that travel with a view: many in a small job, for verdicts compare them with
# earlier steps; fewer in a large one, where any number of ranks may have failed. The few ranks
# whose capture its leader asks for send as many as in a small one.
MAX_RECENT_OPS = 256
MIN_RECENT_OPS = 16
ALL_RECENT_OPS = 1 << 19

Plain = Mapping[str, Any]


def pack(plain: Plain) -> bytes:
    """Plain JSON types as compressed bytes."""
    return zlib.compress(json.dumps(plain, separators=(",", ":")).encode(), 1)


def unpack(data: bytes, *, limit_bytes: int = LIMIT_BYTES) -> dict[str, Any]:
    """The inverse of pack.

    Raises:
        BadDump: not one of ours, or larger than the limit when unpacked.
    """
    try:
        engine = zlib.decompressobj()
        raw = engine.decompress(data, limit_bytes)
        if engine.unconsumed_tail:
            raise BadDump(f"a message between nodes is larger than {limit_bytes} bytes")
        if raw.count(b",") + raw.count(b"[") + raw.count(b"{") > MAX_VALUES:
            raise BadDump(f"a message between nodes has more than {MAX_VALUES} values")
        plain = parse_json(raw)
    except (zlib.error, ValueError) as error:
        raise BadDump(f"a message between nodes cannot be read: {error}") from error
    if not isinstance(plain, dict):
        raise BadDump("a message between nodes is not a JSON object")
    return plain


def _view_to_plain(view: RankView, *, in_full: bool = False) -> dict[str, Any]:
    plain = {name: value for name, value in _shallow(view).items() if name not in ("hook", "dump")}
    if view.hook is not None:
        keep = MAX_RECENT_OPS if in_full else recent_ops(view.hook.world_size)
        plain["hook"] = replace(view.hook, recent=view.hook.recent[-keep:]).to_json()
    return plain


def recent_ops(world_size: int) -> int:
    """Finished operations of a rank that travel, in a job of so many ranks."""
    return max(MIN_RECENT_OPS, min(MAX_RECENT_OPS, ALL_RECENT_OPS // max(1, world_size)))


def _shallow(view: RankView) -> dict[str, Any]:
    return asdict(replace(view, hook=None, dump=None))


def _view_from_plain(plain: Plain) -> RankView:
    fields = dict(plain)
    hook, death = fields.pop("hook", None), evidence_from_json(fields.pop("death", None))
    state = None if hook is None else HookState.from_json(hook)
    cpu = CpuUse(**fields.pop("cpu"))
    sources = _sources(fields.pop("sources", {}))
    return RankView(**fields, hook=state, death=death, cpu=cpu, sources=sources)


def _sources(plain: Plain) -> Sources:
    fields = dict(plain)
    said = {str(source): str(words) for source, words in dict(fields.get("said", {})).items()}
    disputes = tuple(map(str, fields.get("disputes", ())))
    return Sources(str(fields.get("state", "")), said, disputes)


def encode_views(views: Sequence[RankView], extra: Plain | None = None) -> bytes:
    """Views without their dumps, plus any plain JSON facts beside them."""
    return pack({"views": [_view_to_plain(view) for view in views], "extra": dict(extra or {})})


def decode_views(data: bytes) -> tuple[tuple[RankView, ...], dict[str, Any]]:
    """The inverse of encode_views.

    Raises:
        BadDump: not one of ours.
    """
    return _views_of(unpack(data))


def _views_of(plain: Plain) -> tuple[tuple[RankView, ...], dict[str, Any]]:
    try:
        views = tuple(_view_from_plain(view) for view in plain["views"])
        return views, dict(plain.get("extra", {}))
    except (KeyError, TypeError, ValueError) as error:
        raise BadDump(f"a node's views cannot be read: {error!r}") from error


def encode_capture(
    views: Sequence[RankView],
    dumps: Sequence[RankDump],
    limit_bytes: int,
    in_full: Collection[int] = (),
) -> tuple[bytes, tuple[int, ...]]:
    """Views and dumps of one node in one message of bounded size.

    Args:
        limit_bytes: of the compressed message; the largest dumps are left out to keep it.
        in_full: ranks of a large job whose operations all travel, as in a small one.

    Returns:
        the message, and the ranks whose dump was left out.
    """
    blobs = {dump.rank: zlib.compress(encode(dump), 1) for dump in dumps}
    left_out: list[int] = []
    # base64 costs a third; the outer zlib gets most of it back.
    while blobs and sum(map(len, blobs.values())) > limit_bytes:
        largest = max(blobs, key=lambda rank: len(blobs[rank]))
        left_out.append(largest)
        del blobs[largest]
    texts = {str(rank): base64.b64encode(blob).decode() for rank, blob in blobs.items()}
    in_views = [_view_to_plain(view, in_full=view.rank in in_full) for view in views]
    plain = {"views": in_views, "dumps": texts}
    return pack(plain), tuple(sorted(left_out))


def decode_capture(data: bytes) -> tuple[tuple[RankView, ...], tuple[RankDump, ...]]:
    """The inverse of encode_capture; a single bad dump is left out.

    Raises:
        BadDump: the message as a whole is not one of ours.
    """
    plain = unpack(data)
    views, _ = _views_of(plain)
    dumps: list[RankDump] = []
    blobs = plain.get("dumps", {})
    for rank, text in blobs.items() if isinstance(blobs, dict) else ():
        try:
            engine = zlib.decompressobj()
            raw = engine.decompress(base64.b64decode(text, validate=True), MAX_FILE_BYTES + 1)
            dumps.append(decode(raw, name=f"rank {rank}"))
        except (BadDump, zlib.error, binascii.Error, TypeError, ValueError):
            continue
    return views, tuple(dumps)
