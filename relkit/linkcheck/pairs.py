"""Socket pairs as the user writes them: "0:1 2:4 3:5 6:7"."""

from __future__ import annotations

import re
from collections.abc import Iterable

from relkit.errors import UsageProblem
from relkit.linkcheck.model import Pair

DEFAULT_PAIRS = "0:1 2:4 3:5 6:7"
_PAIR = re.compile(r"([0-9]{1,4}):([0-9]{1,4})", re.ASCII)


def parse_pairs(texts: Iterable[str]) -> tuple[Pair, ...]:
    """Read pairs of sockets.

    Args:
        texts: pieces such as "0:1 2:4" or "0:1,2:4"; white space and commas separate pairs.

    Raises:
        UsageProblem: a piece is no pair, a pair joins a socket to itself or is there twice, or
            there is none at all.
    """
    pairs: list[Pair] = []
    for word in " ".join(texts).replace(",", " ").split():
        match = _PAIR.fullmatch(word)
        if match is None:
            raise UsageProblem(
                f"{word[:40]!r} is not a pair of sockets",
                next_step=f'Write pairs as SOCKET:SOCKET, e.g. --box-pairs "{DEFAULT_PAIRS}".',
            )
        pair = Pair(int(match[1]), int(match[2]))
        if pair.first == pair.second:
            raise UsageProblem(f"the pair {word} joins a socket to itself")
        if any(set(pair.sockets) == set(known.sockets) for known in pairs):
            raise UsageProblem(
                f"the pair {word} is there twice",
                next_step="Name each pair once: a link counts as one channel.",
            )
        pairs.append(pair)
    if not pairs:
        raise UsageProblem("no pair of sockets is given")
    return tuple(pairs)


def shared_sockets(pairs: Iterable[Pair]) -> tuple[int, ...]:
    """Sockets that stand in more than one pair; such pairs cannot be measured at one time."""
    sockets = [socket for pair in pairs for socket in pair.sockets]
    return tuple(sorted({socket for socket in sockets if sockets.count(socket) > 1}))
