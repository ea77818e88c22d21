"""Whom this launcher reports to, as silence and beats tell it (pure).

Two nodes may both lead for a while, where the way between them is cut: each then leads those that
hear it. What a leader of hangs does may be done twice: it has ranks captured, and says who is at
fault. What is done to workers, each launcher does to its own, once an attempt; which nodes meet
afterwards is decided in the rendezvous store, by compare-and-set.
"""

from __future__ import annotations

from dataclasses import dataclass

from relkit.launch.control.tree import FAN_IN, candidates

# Beats come so often, s.
BEAT_S = 1.0
# A node that was not heard for this long is silent; sooner where its connection has ended, which
# the end of its process does.
SILENT_S = 5.0
GONE_S = 1.5
# Without a look for this long, nothing was seen that could have been missed, s.
_GAP_S = 2.5


@dataclass(slots=True)
class _Candidate:
    """One that may be this node's parent.

    Args:
        asked_s: since when it is sent beats; heard_s: when it last sent one.
        gone_s: when the connection to it ended; None while there is one.
        path: from the leader to it, as it says.
    """

    asked_s: float | None = None
    heard_s: float | None = None
    gone_s: float | None = None
    path: tuple[int, ...] = ()


class Attachment:
    """One node's place in the tree.

    Args:
        node: its number; nodes: how many there are; fan_in: of the tree.
    """

    def __init__(self, node: int, nodes: int, fan_in: int = FAN_IN) -> None:
        self.node = node
        self._candidates = {each: _Candidate() for each in candidates(node, nodes, fan_in)}
        # Until it is known better, node 0 leads.
        self.path: tuple[int, ...] = (0,) if node == 0 else (0, node)
        self.parent: int | None = None
        self._silent: frozenset[int] = frozenset()
        self._looked_s: float | None = None

    @property
    def leader(self) -> int:
        """Who leads, as far as this node knows."""
        return self.path[0]

    @property
    def silent(self) -> frozenset[int]:
        """Nodes that this one would hear, and does not."""
        return self._silent

    def heard(self, sender: int, path: tuple[int, ...], now_s: float) -> None:
        """A candidate has sent a beat.

        Args:
            path: from its leader to it; now_s: monotonic time, s.
        """
        candidate = self._candidates.get(sender)
        if candidate is not None and self.node not in path:
            candidate.heard_s, candidate.gone_s, candidate.path = now_s, None, path

    def disconnected(self, node: int, now_s: float) -> None:
        """The connection to a candidate has ended; it is made again where that can be."""
        candidate = self._candidates.get(node)
        if candidate is not None and candidate.gone_s is None:
            candidate.gone_s = now_s

    def look(self, now_s: float) -> tuple[int, ...]:
        """Choose the parent.

        Args:
            now_s: monotonic time, s.

        Returns:
            whom to send beats: the candidates down to the first that is not silent. Those before it
            may come back.
        """
        if self._looked_s is not None and now_s - self._looked_s > _GAP_S:
            # It is this node that was away.
            self._shift(now_s - self._looked_s)
        self._looked_s = now_s
        asked: list[int] = []
        silent: set[int] = set()
        self.parent = None
        for number, candidate in self._candidates.items():
            asked.append(number)
            candidate.asked_s = now_s if candidate.asked_s is None else candidate.asked_s
            if _is_silent(candidate, now_s):
                silent.add(number)
                continue
            self.parent = number
            if candidate.heard_s is not None:
                self.path = (*candidate.path, self.node)
            break
        else:
            self.path = (self.node,)
        self._silent = frozenset(silent)
        return tuple(asked)

    def _shift(self, missed_s: float) -> None:
        for candidate in self._candidates.values():
            if candidate.heard_s is not None:
                candidate.heard_s += missed_s
            if candidate.asked_s is not None:
                candidate.asked_s += missed_s


def _is_silent(candidate: _Candidate, now_s: float) -> bool:
    since_s = candidate.heard_s if candidate.heard_s is not None else candidate.asked_s
    if since_s is not None and now_s - since_s > SILENT_S:
        return True
    return candidate.gone_s is not None and now_s - candidate.gone_s > GONE_S
