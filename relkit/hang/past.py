"""What a rank called at the same point of earlier steps: steps of training repeat."""

from __future__ import annotations

from relkit.hang.model import RankView
from relkit.hang.stackclass import SETUP
from relkit.hook.model import Op, OpKind

_LONGEST_CONTEXT = 6

_Call = tuple[str, int, int, int]


def _call(op: Op) -> _Call:
    peer = (op.peer, op.tag) if op.kind is OpKind.P2P else (-1, 0)
    return op.name, op.communicator, *peer


def calls_of(view: RankView) -> tuple[Op, ...]:
    """Its collectives, sends and receives, by start; the last is the one that it started last."""
    if view.hook is None:
        return ()
    ops = [
        op
        for op in (*view.hook.recent, *view.hook.in_flight)
        if op.communicates and op.name not in SETUP
    ]
    return tuple(sorted(ops, key=lambda op: op.start_ns))


def expected_instead(view: RankView) -> Op | None:
    """What it had always called before, where it last called something else; None: it did not.

    At each call the longest stretch of calls that ends just before it, and that was made before,
    says what may follow. The first half of what is recorded only serves as the past.
    """
    ops = calls_of(view)
    calls = [_call(op) for op in ops]
    followers: dict[tuple[_Call, ...], dict[_Call, Op]] = {}
    instead = None
    for at, call in enumerate(calls):
        contexts = [tuple(calls[at - n : at]) for n in range(min(_LONGEST_CONTEXT, at), 0, -1)]
        known = next((followers[each] for each in contexts if each in followers), None)
        if known is not None and call not in known and 2 * at >= len(calls):
            instead = list(known.values())[-1]
        for each in contexts:
            followers.setdefault(each, {})[call] = ops[at]
    return instead
