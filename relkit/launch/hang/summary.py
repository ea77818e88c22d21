"""What each node tells the leader of its ranks every second: a fixed number of bytes a rank.

A block is of one node: a head, then a row for each of its ranks. Blocks stand one behind another
where a node in between passes on those of several. All numbers are little-endian. It is enough to
say that a job is healthy; what a verdict needs beyond that is asked for (see remote_views).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from relkit.errors import BadDump
from relkit.hang.columns.operations import key_of, kind_number
from relkit.hang.detection.view_columns import is_unheard, only_set_up
from relkit.hang.model import RankView
from relkit.launch.hang.observe import MAX_WORLD_SIZE

_MAGIC, _VERSION = b"RS", 1
MAX_HOST_BYTES = 64
MAX_RANKS_A_NODE = 4096
# Of a rank's operations in flight the oldest ones; a younger one is seen once those have ended.
FLIGHTS = 3
_MAX_COUNT = 1 << 62
# More than any process has used or waited, s.
_MAX_SECONDS = 1e9
_BITS = np.dtype("<u4")
_MAX_SECONDS_BITS = np.array(_MAX_SECONDS, "<f4").view(_BITS)

Rows = npt.NDArray[np.void]

HEAD = np.dtype(
    [
        ("magic", "S2"),
        ("version", "u1"),
        ("node", "<u4"),
        ("ranks", "<u2"),
        ("at_s", "<f8"),
        ("host", f"S{MAX_HOST_BYTES}"),
    ]
)
FLIGHT = np.dtype([("key", "<u4"), ("kind", "<u4"), ("age_s", "<f4")])
ROW = np.dtype(
    [
        ("rank", "<u4"),
        ("pid", "<u4"),
        ("flags", "u1"),
        ("state", "u1"),
        ("exit_code", "<i2"),
        ("started", "<u8"),
        ("finished", "<u8"),
        ("idle_s", "<f4"),
        ("used_s", "<f4"),
        ("window_s", "<f4"),
        ("waited_s", "<f4"),
        ("flights", FLIGHT, (FLIGHTS,)),
    ]
)
ALIVE, HAS_HOOK, SET_UP, HAS_EXIT_CODE, UNHEARD = 1, 2, 4, 8, 128
# How many flights follow, in three bits of the flags.
_FLIGHTS_SHIFT, _FLIGHTS_MASK = 4, 7
_SECONDS = ("idle_s", "used_s", "window_s", "waited_s")


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """Of several nodes with equally many ranks.

    Args:
        heads: a HEAD a node; rows: ROWs, a node's in a line.
    """

    heads: Rows
    rows: Rows

    def only(self, which: npt.NDArray[np.bool_]) -> Blocks:
        """Those of some of the nodes; nearly always that is all."""
        return self if which.all() else Blocks(self.heads[which], self.rows[which])


def encode_summary(node: int, at_s: float, views: Sequence[RankView]) -> bytes:
    """One node's block.

    Args:
        node: its number; at_s: when, on a clock of its own; views: of its ranks.
    """
    head = np.zeros(1, HEAD)
    host = views[0].host.encode()[:MAX_HOST_BYTES] if views else b""
    head[0] = (_MAGIC, _VERSION, node, len(views), at_s, host)
    rows = np.zeros(len(views), ROW)
    for row, view in zip(rows, views, strict=True):
        _fill(row, view)
    return head.tobytes() + rows.tobytes()


def _fill(row: np.void, view: RankView) -> None:
    flags = ALIVE * view.alive | HAS_EXIT_CODE * (view.exit_code is not None)
    row["rank"], row["pid"] = view.rank, view.pid
    row["state"] = min(255, ord(view.process_state[:1] or "\0"))
    row["exit_code"] = max(-(1 << 15), min((1 << 15) - 1, view.exit_code or 0))
    flags |= UNHEARD * is_unheard(view)
    cpu, state = view.cpu, view.hook
    row["used_s"], row["window_s"], row["waited_s"] = cpu.used_s, cpu.window_s, cpu.waited_s
    if state is not None:
        oldest = sorted(state.in_flight, key=lambda op: op.start_ns)[:FLIGHTS]
        flags |= HAS_HOOK | SET_UP * only_set_up(state) | len(oldest) << _FLIGHTS_SHIFT
        row["started"], row["finished"] = state.started, state.finished
        row["idle_s"] = min(_MAX_SECONDS, max(0, state.now_ns - state.last_finish_ns) / 1e9)
        for place, op in zip(row["flights"], oldest, strict=False):
            age_s = min(_MAX_SECONDS, max(0, state.now_ns - op.start_ns) / 1e9)
            place["key"], place["kind"] = key_of(op), kind_number(op, state)
            place["age_s"] = age_s
    row["flags"] = flags


def flight_counts(rows: Rows) -> npt.NDArray[np.int64]:
    """How many operations each of these rows has in flight, of those that it tells."""
    counts: npt.NDArray[np.int64] = (rows["flags"] >> _FLIGHTS_SHIFT & _FLIGHTS_MASK).astype(
        np.int64
    )
    return counts


def decode_summaries(data: bytes, nodes: int) -> list[Blocks]:
    """Blocks that stand one behind another; neighbours of equal size come together.

    Args:
        nodes: of the job.

    Raises:
        BadDump: they are none of this version, or say what no job has.
    """
    groups: list[Blocks] = []
    at = 0
    while at < len(data):
        if len(data) - at < HEAD.itemsize:
            raise BadDump(f"a summary that ends after {len(data) - at} bytes of its head")
        head = np.frombuffer(data, HEAD, 1, at)[0]
        _check_head(head)
        ranks = int(head["ranks"])
        block = np.dtype([("head", HEAD), ("rows", ROW, (ranks,))])
        many = np.frombuffer(data, block, (len(data) - at) // block.itemsize, at)
        if not len(many):
            raise BadDump(f"a summary of {ranks} ranks that ends after {len(data) - at} bytes")
        heads = many["head"]
        alike = (heads["magic"] == _MAGIC) & (heads["version"] == _VERSION)
        alike &= heads["ranks"] == ranks
        count = len(many) if alike.all() else int(np.argmin(alike))
        blocks = Blocks(heads[:count], many["rows"][:count])
        _check(blocks, nodes)
        groups.append(blocks)
        at += count * block.itemsize
    return groups


def _check_head(head: np.void) -> None:
    if head["magic"] != _MAGIC or head["version"] != _VERSION:
        raise BadDump(f"not a summary of version {_VERSION}; run the same relkit on all nodes")
    if head["ranks"] > MAX_RANKS_A_NODE:
        raise BadDump(f"a summary of {head['ranks']} ranks on one node")


def _check(blocks: Blocks, nodes: int) -> None:
    """Refuse numbers that no job has: what is made for each of them would fill the memory."""
    heads, rows = blocks.heads, blocks.rows
    if (heads["node"] >= nodes).any():
        raise BadDump(f"a summary of node {heads['node'].max()} of a job of {nodes}")
    if not np.isfinite(heads["at_s"]).all():
        raise BadDump("a summary of no time")
    if (rows["rank"] >= MAX_WORLD_SIZE).any():
        raise BadDump(f"a summary of rank {rows['rank'].max()}")
    if (flight_counts(rows) > FLIGHTS).any():
        raise BadDump(f"a summary of more than {FLIGHTS} operations in flight on a rank")
    counts = np.maximum(rows["started"], rows["finished"])
    if (counts >= _MAX_COUNT).any():
        raise BadDump(f"a summary of {counts.max()} operations")
    ages_s = rows["flights"]["age_s"]
    if not (_are_times(ages_s) and all(_are_times(rows[name]) for name in _SECONDS)):
        raise BadDump("a summary with a time that cannot be")


def _are_times(values_s: npt.NDArray[np.float32]) -> bool:
    """Whether all are numbers from 0 to the longest time there is."""
    # The bits of positive floats are in the order of the floats; those of negative ones, of
    # infinity and of what is no number are greater. So one pass is enough.
    return bool(values_s.view(_BITS).max(initial=0) <= _MAX_SECONDS_BITS)
