"""What a rank called at the same point of earlier steps: steps of training repeat."""

from __future__ import annotations

from relkit.hang.model import RankView
from relkit.hang.stackclass import SETUP
from relkit.hook.model import Op, OpKind

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


def expected_instead(view: RankView, longest: int) -> Op | None:
    """What it had always called before, where it last called something else; None: it did not.

    At each call the longest stretch of calls that ends just before it, and that was made before,
    says what may follow. The first half of what is recorded only serves as the past.

    Args:
        longest: stretches of so many calls are long enough to say that a call is odd. What it
            had called instead, the longest stretch of all says.
    """
    ops = calls_of(view)
    known: dict[_Call, int] = {}
    text = "".join(chr(known.setdefault(_call(op), len(known))) for op in ops)
    for at in range(len(text) - 1, max(0, (len(text) - 1) // 2), -1):
        followers = _followers(text, at, longest)
        if followers and text[at] not in {text[follower] for follower in followers}:
            return ops[_followers(text, at, at)[-1]]
    return None


def _followers(text: str, at: int, longest: int) -> list[int]:
    """Where the longest stretch that ends before `at` was followed by something, oldest first."""
    low, high = 0, min(longest, at - 1)
    while low < high:
        middle = (low + high + 1) // 2
        if text.find(text[at - middle : at], 0, at - 1) >= 0:
            low = middle
        else:
            high = middle - 1
    found = []
    start = text.find(text[at - low : at], 0, at - 1) if low else -1
    while start >= 0:
        found.append(start + low)
        start = text.find(text[at - low : at], start + 1, at - 1)
    return found
