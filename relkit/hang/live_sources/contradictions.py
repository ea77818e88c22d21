"""Where the hook and another recorder say different things of one rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from relkit.hang.model import HOOK, RankView, Sources
from relkit.hang.stackclass import SETUP
from relkit.hang.words import operation
from relkit.hook.model import HookState, Op, OpKind

# The two are not read at the same moment: what is younger may be in flight for one of them alone.
SETTLED_S = 2.0


def sees_communication(state: HookState) -> bool:
    """Whether a recorder saw a collective or a transfer, beyond the making of groups."""
    if any(c.seq >= 0 for c in state.communicators) or state.transfers:
        return True
    ops = (*state.in_flight, *state.recent)
    return any(op.communicates and op.name not in SETUP for op in ops)


def contradictions(hook: HookState, other: HookState, name: str) -> tuple[str, ...]:
    """What the two disagree about, in words; the hook counts.

    Args:
        hook: of a rank; other: of the same, from the source called `name`, with its operations.
    """
    ours, theirs = _settled(hook), _settled(other)
    names = {op.name for op in ours} & {op.name for op in theirs}
    if names or not (ours or theirs):
        return ()
    if not ours and any(op.communicates for op in hook.in_flight):
        return ()
    if not theirs and any(op.communicates for op in other.in_flight):
        return ()
    return (
        f"the hook has {_first(ours, hook)} in flight, the {name} {_first(theirs, other)}: "
        "the hook counts",
    )


def _settled(state: HookState) -> list[Op]:
    """Collectives in flight for long enough that every source must have them."""
    return [
        op
        for op in state.in_flight
        if op.kind is OpKind.COLLECTIVE
        and op.name not in SETUP
        and state.now_ns - op.start_ns >= SETTLED_S * 1e9
    ]


def _first(ops: Sequence[Op], state: HookState) -> str:
    return operation(ops[0], state) if ops else "no collective"


def with_one_numbering(views: Sequence[RankView]) -> tuple[RankView, ...]:
    """Without the operations that another source knows, where the hook knows those of other ranks.

    Recorders count the calls of a group each in its own way: side by side they would accuse ranks
    that did nothing. Such a rank is then judged by its stack.

    Args:
        views: of the whole job.
    """
    known = {
        view.sources.state for view in views if view.hook is not None and _in_groups(view.hook)
    }
    if len(known - {""}) < 2:
        return tuple(views)
    return tuple(
        view
        if view.sources.state in ("", HOOK)
        else replace(view, hook=None, sources=_unused(view.sources))
        for view in views
    )


def _in_groups(state: HookState) -> bool:
    return any(c.seq >= 0 for c in state.communicators)


def _unused(sources: Sources) -> Sources:
    words = sources.said.get(sources.state, "")
    note = f"{words} (not compared with the hook's numbers of other ranks)"
    return Sources("", {**sources.said, sources.state: note}, sources.disputes)
