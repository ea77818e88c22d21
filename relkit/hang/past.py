"""What a rank called at the same point of earlier steps: steps of training repeat."""

from __future__ import annotations

from collections.abc import Sequence

from relkit.hang.model import RankView
from relkit.hang.stackclass import SETUP
from relkit.hook.model import Op, OpKind

_Call = tuple[str, int, int, int]
# A group, whether it receives, the peer and the tag.
_Way = tuple[int, bool, int, int]
_POSTS = 1 << 24


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
    text = _text(ops)
    for at in range(len(text) - 1, max(0, (len(text) - 1) // 2), -1):
        followers = _followers(text, at, longest)
        if followers and text[at] not in {text[follower] for follower in followers}:
            return ops[_followers(text, at, at)[-1]]
    return None


def _text(ops: Sequence[Op]) -> str:
    """A character a call, so that stretches of calls are found fast."""
    known: dict[_Call, int] = {}
    return "".join(chr(known.setdefault(_call(op), len(known))) for op in ops)


def _followers(text: str, at: int, longest: int) -> list[int]:
    """Where the longest stretch that ends before `at` was followed by something, oldest first."""
    low, high = 0, min(longest, at - 1)
    while low < high:
        middle = (low + high + 1) // 2
        if text.find(text[at - middle : at], 0, at - 1) >= 0:
            low = middle
        else:
            high = middle - 1
    followers = []
    start = text.find(text[at - low : at], 0, at - 1) if low else -1
    while start >= 0:
        followers.append(start + low)
        start = text.find(text[at - low : at], start + 1, at - 1)
    return followers


def not_posted(view: RankView) -> Op | None:
    """A send or receive that it had posted by this point of earlier steps; None: none is missing.

    What runs in the background is recorded when it is waited for, which may be long after: then
    only the counts show that one is missing.
    """
    ops = calls_of(view)
    if view.hook is None or not ops or ops[-1].end_ns or not ops[-1].post:
        return None
    text = _text(ops)
    before = _same_point(text, len(ops) - 1)
    earlier = _same_point(text, before)
    if earlier < 0:
        return None
    usual, first = _posted_by(ops, ops[before]), _posted_by(ops, ops[earlier])
    for count in view.hook.transfers:
        way = (count.communicator, count.receives, count.peer, count.tag)
        if way in first and count.posted < 2 * _number(usual[way]) - _number(first[way]):
            return usual[way]
    return None


def _number(op: Op) -> int:
    return op.seq + 1


def _same_point(text: str, at: int) -> int:
    """The same point of an earlier step; -1 where there is none."""
    return max(_followers(text, at, at), default=-1)


def _posted_by(ops: Sequence[Op], point: Op) -> dict[_Way, Op]:
    """The newest send or receive of each way that had been posted by then."""
    newest: dict[_Way, Op] = {}
    for op in ops:
        if op.kind is OpKind.P2P and op.post and (point.post - op.post) % _POSTS < _POSTS // 2:
            way = (op.communicator, op.name == "recv", op.peer, op.tag)
            if way not in newest or newest[way].seq < op.seq:
                newest[way] = op
    return newest
