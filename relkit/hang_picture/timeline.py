"""The last operations of every rank, in seconds before it was looked at."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from relkit.hang.model import RankView
from relkit.hang.waits import Wait
from relkit.hang.words import operation
from relkit.hang_picture.model import RankTimeline, TimelineOp
from relkit.hook.model import HookState, Op, OpKind
from relkit.ranks import RankSet

MAX_RANKS = 1024
# Operations of all ranks together, and of one rank.
ALL_OPS = 49_152
MIN_OPS = 16
MAX_OPS = 160
# Older than this before the newest, an operation says nothing about the hang.
HISTORY_S = 60.0

_KINDS = {
    OpKind.COLLECTIVE: "collective",
    OpKind.P2P: "transfer",
    OpKind.GEMM: "compute",
    OpKind.KERNEL: "compute",
}


def timeline(
    views: Mapping[int, RankView], waits: Sequence[Wait], culprits: RankSet
) -> tuple[list[RankTimeline], int]:
    """What each rank did last, by rank, and how many ranks there was no room for.

    Args:
        views: by rank; waits: who waits for whom; culprits: the ranks at fault.
    """
    recorded = [rank for rank, view in sorted(views.items()) if view.hook is not None]
    kept = _kept(recorded, waits, culprits)
    each = max(MIN_OPS, min(MAX_OPS, ALL_OPS // max(1, len(kept))))
    lanes = []
    for rank in kept:
        hook = views[rank].hook
        if hook is not None:
            lanes.append(RankTimeline(rank, rank in culprits, _ops(hook, each)))
    return lanes, len(recorded) - len(kept)


def _kept(recorded: Sequence[int], waits: Sequence[Wait], culprits: RankSet) -> list[int]:
    """The culprits, a rank of each wait, and of the others some from everywhere in the job."""
    if len(recorded) <= MAX_RANKS:
        return list(recorded)
    known = set(recorded)
    examples: Iterable[int] = (next(iter(wait.waiters), -1) for wait in waits)
    step = -(-len(recorded) // MAX_RANKS)
    chosen = dict.fromkeys([*culprits, *examples, *recorded[::step]])
    return sorted([rank for rank in chosen if rank in known][:MAX_RANKS])


def _ops(hook: HookState, most: int) -> tuple[TimelineOp, ...]:
    past = sorted((op for op in hook.recent if op.kind in _KINDS), key=lambda op: op.end_ns)
    newest_ns = past[-1].end_ns if past else 0
    past = [op for op in past[-most:] if newest_ns - op.end_ns <= HISTORY_S * 1e9]
    flying = [op for op in hook.in_flight if op.kind in _KINDS]
    return tuple(_op(op, hook) for op in (*past, *flying[:most]))


def _op(op: Op, hook: HookState) -> TimelineOp:
    return TimelineOp(
        what=operation(op, hook),
        kind=_KINDS[op.kind],
        began_s=_before(op.start_ns, hook),
        # Flight recorders may know that an operation has ended, and not when.
        ended_s=_before(max(op.end_ns, op.start_ns), hook) if op.end_ns else None,
        failed=op.failed,
    )


def _before(time_ns: int, hook: HookState) -> float:
    return round(max(0, hook.now_ns - time_ns) / 1e9, 4)
