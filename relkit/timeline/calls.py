"""The collectives of one rank with the keys by which other ranks know them (pure)."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from relkit.hook import layout
from relkit.hook.model import OpKind
from relkit.straggler.collect.event_rows import mix
from relkit.timeline.model import RankTimeline

Ints = npt.NDArray[np.int64]
Codes = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]

# Nobody leaves one of these before everybody has come; those of uneven sizes may be empty for some.
_SYNCHRONISING = frozenset({"allreduce", "allgather", "reduce_scatter", "alltoall", "barrier"})
_FROM_ROOT, _TO_ROOT = frozenset({"broadcast", "scatter"}), frozenset({"reduce", "gather"})
_RECEIVE_MARK = np.uint64(0x5265_6376)


@dataclass(frozen=True, slots=True, eq=False)
class Calls:
    """Collectives and transfers that other ranks took part in, one a row.

    Args:
        place: in the rows of the rank.
        key: equal on all ranks for one operation, and different for any two operations; 0 = nobody
            can know it.
        size: how many ranks take part.
        start_ns, end_ns: Unix time by the clock of the rank's host.
        sends, hears: it cannot have ended elsewhere before it began here, and the other way round.
        is_collective: no send or receive.
    """

    place: Ints
    key: Codes
    size: Ints
    start_ns: Ints
    end_ns: Ints
    sends: Flags
    hears: Flags
    is_collective: Flags


def calls_of(timeline: RankTimeline) -> Calls:
    """Finished communication of a rank, in the order of its rows; what repeats a key has none."""
    rows = timeline.rows
    kinds = np.array([int(hook.kind) for hook in timeline.hooks] or [0])
    hook = np.minimum(rows["hook"].astype(np.int64), len(kinds) - 1)
    kind = kinds[hook]
    shared = ((kind == OpKind.COLLECTIVE) | (kind == OpKind.P2P)) & (rows["end_ns"] > 0)
    shared &= (rows["flags"] & layout.OP_FAILED) == 0
    place = np.flatnonzero(shared)
    rows, hook, kind = rows[place], hook[place], kind[place]
    group = rows["communicator"].astype(np.int64)
    groups = timeline.groups
    codes = np.array([*(_group_code(each.name, each.size) for each in groups), 0], np.uint64)
    sizes = np.array([*(each.size for each in groups), 0], np.int64)
    mine = np.array([*(each.rank for each in groups), -1], np.int64)
    group[(group < 0) | (group >= len(groups))] = len(groups)
    is_collective = kind == OpKind.COLLECTIVE
    names = np.array([_name_code(each.name) for each in timeline.hooks] or [0], np.uint64)
    seq = rows["seq"].astype(np.int64)
    key = mix(codes[group] + mix(names[hook] + mix(seq.astype(np.uint64))))
    p2p = _transfer_keys(codes[group], mine[group], rows)
    key = np.where(is_collective, key, p2p)
    key[(codes[group] == 0) | (seq < 0)] = 0
    _, at, count = np.unique(key, return_inverse=True, return_counts=True)
    key[count[at] > 1] = 0
    sends, hears = _directions(timeline, hook, rows, mine[group])
    offset = timeline.identity.unix_offset_ns
    return Calls(
        place.astype(np.int64),
        key,
        np.where(is_collective, sizes[group], 2),
        rows["start_ns"].astype(np.int64) + offset,
        rows["end_ns"].astype(np.int64) + offset,
        sends,
        hears,
        is_collective,
    )


def _transfer_keys(group: Codes, mine: Ints, rows: npt.NDArray[np.void]) -> Codes:
    """Equal for a send and its receive: the n-th of one is the n-th of the other."""
    receives = (rows["flags"] & layout.OP_RECEIVES) != 0
    peer = rows["peer"].astype(np.int64)
    sender, receiver = np.where(receives, peer, mine), np.where(receives, mine, peer)
    ends = (sender * (1 << 24) + receiver).astype(np.uint64)
    number = mix(rows["flops"].astype(np.uint64) + mix(rows["seq"].astype(np.uint64)))
    key: Codes = mix(group + _RECEIVE_MARK + mix(ends + number))
    key[(peer < 0) | (mine < 0)] = 0
    return key


def _directions(
    timeline: RankTimeline, hook: Ints, rows: npt.NDArray[np.void], mine: Ints
) -> tuple[Flags, Flags]:
    hooks = timeline.hooks

    def among(names: frozenset[str]) -> Flags:
        table = np.array([each.name in names for each in hooks] or [False])
        chosen: Flags = table[hook]
        return chosen

    barrier = np.array([each.name == "barrier" for each in hooks] or [False])[hook]
    moves = (rows["size_bytes"] > 0) | barrier
    both = among(_SYNCHRONISING) & moves
    is_root = (rows["peer"] == mine) & (mine >= 0)
    has_root = (rows["peer"] >= 0) & (mine >= 0) & moves
    outward, inward = among(_FROM_ROOT) & has_root, among(_TO_ROOT) & has_root
    # gloo's sends and receives begin when they are waited for: only those of a device tell.
    on_device = (rows["enqueue_ns"] > 0) & (rows["size_bytes"] > 0)
    kinds = np.array([int(each.kind) for each in hooks] or [0])[hook]
    transfer = (kinds == OpKind.P2P) & on_device
    receives = (rows["flags"] & layout.OP_RECEIVES) != 0
    sends = both | (outward & is_root) | (inward & ~is_root) | (transfer & ~receives)
    hears = both | (outward & ~is_root) | (inward & is_root) | (transfer & receives)
    return sends, hears


def _group_code(name: str, size: int) -> int:
    """0 for a group that nobody else can know."""
    if not name or size < 2:
        return 0
    return _name_code(f"{name}/{size}")


def _name_code(name: str) -> int:
    digest = hashlib.blake2b(name.encode("utf-8", "replace"), digest_size=8).digest()
    return int.from_bytes(digest, "little")
