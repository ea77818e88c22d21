"""What the leader knows of the ranks on the other nodes, and how old that knowledge is.

Every node sends a summary a second, in a large job less often (see summary and share_every_s). More
than it tells is asked for, by rank, and comes as views in the same rhythm until nothing is asked
for any more:
    details         leader -> all: of which ranks it wants to know all
    details/<n>     node n -> leader: views of those of them that it has
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from relkit.errors import BadDump
from relkit.hang.columns.ranks import RankColumns
from relkit.hang.model import RankView
from relkit.launch.hang import codec
from relkit.launch.hang.remote_ranks import RemoteRanks
from relkit.launch.hang.summary import decode_summaries
from relkit.launch.job.exchange import LedMailbox
from relkit.ranks import RankSet

# Time between two summaries of a node; with more nodes than this longer in proportion, so that the
# leader does not have more to do in a second. But not too long: a rank that is asked about is to be
# seen twice in the time for which it is asked about (PACE_S of the suspicions).
SHARE_EVERY_S, _MAX_SHARE_EVERY_S = 1.0, 2.5
_NODES_EVERY_SECOND = 4096
# A node whose summary has not changed for this long is treated as not answering.
SILENT_NODE_S = 10.0
# Views that are older than their node's newest summary, by more than the time between so many
# summaries, tell of another time.
_OUTDATED_SUMMARIES = 2
REQUEST_KEY = "details"


def share_every_s(nodes: int) -> float:
    """Time between two summaries of a node, s.

    Args:
        nodes: of the job.
    """
    return min(_MAX_SHARE_EVERY_S, SHARE_EVERY_S * max(1.0, nodes / _NODES_EVERY_SECOND))


def details_key(node: int) -> str:
    """The key under which the views of a node's ranks lie that were asked for."""
    return f"{REQUEST_KEY}/{node}"


def encode_request(ranks: RankSet) -> bytes:
    """Ask for the views of these ranks, from here on."""
    return codec.pack(plain_ranks(ranks))


def plain_ranks(ranks: RankSet) -> dict[str, object]:
    """For a request that names ranks, see asked_ranks."""
    return {"ranks": ranks.intervals}


def decode_request(note: bytes | None, local: Collection[int]) -> frozenset[int]:
    """Which of this node's ranks are asked for.

    Raises:
        BadDump: not one of ours.
    """
    if note is None:
        return frozenset()
    return asked_ranks(codec.unpack(note), local)


def asked_ranks(plain: Mapping[str, Any], local: Collection[int]) -> frozenset[int]:
    """Which of this node's ranks a request names.

    Raises:
        BadDump: it names none, or not as we do.
    """
    try:
        intervals = [(int(low), int(high)) for low, high in plain["ranks"]]
    except (KeyError, TypeError, ValueError) as error:
        raise BadDump(f"a request for views cannot be read: {error!r}") from error
    return frozenset(rank for rank in local if any(low <= rank <= high for low, high in intervals))


@dataclass(frozen=True, slots=True)
class _Details:
    """What a node has sent of its ranks beside its summary.

    Args:
        note: as it came; at_s: when it was made, on the clock of the node's summaries; views: in
            it, by rank.
    """

    note: bytes
    at_s: float
    views: dict[int, RankView]


class RemoteViews:
    """The other nodes' ranks as their newest summaries show them.

    Args:
        mailbox: to the other nodes.
    """

    def __init__(self, mailbox: LedMailbox) -> None:
        self._mailbox = mailbox
        self._ranks = RemoteRanks(mailbox.nodes)
        self._next_s, self.share_every_s = 0.0, share_every_s(mailbox.nodes)
        # Whose views are asked for; this node's own may be among them.
        self.asked = RankSet()
        # By node: those that have ranks that were asked for.
        self._details: dict[int, _Details | None] = {}

    @property
    def count(self) -> int:
        """Ranks on other nodes that are known."""
        return len(self._ranks)

    def receive(self, now_s: float) -> bool:
        """Read the summaries that have changed, where it is time to.

        Returns:
            True where the store was reached.

        Raises:
            ExchangeBroken: the store failed.
        """
        if now_s < self._next_s:
            self._receive_details()
            return False
        self._next_s = now_s + self.share_every_s
        arrived = []
        for note in self._mailbox.take_shared():
            try:
                arrived += decode_summaries(note, self._mailbox.nodes)
            except BadDump:
                continue
        self._ranks.take(now_s, arrived)
        self._receive_details()
        return True

    def ask(self, ranks: RankSet) -> None:
        """Ask for the views of these ranks until told otherwise; those of others are forgotten.

        Raises:
            ExchangeBroken: the store failed.
        """
        if ranks == self.asked:
            return
        self.asked = ranks
        self._mailbox.put(REQUEST_KEY, encode_request(ranks))
        nodes = self._ranks.nodes_of(np.fromiter(ranks, np.int64)) if ranks else []
        self._details = {node: self._details.get(node) for node in nodes}

    def _receive_details(self) -> None:
        for node, known in self._details.items():
            note = self._mailbox.get(details_key(node))
            if note is None or (known is not None and known.note == note):
                continue
            try:
                views, extra = codec.decode_views(note)
                at_s = float(extra["at"])
            except (BadDump, KeyError, TypeError, ValueError):
                continue
            self._details[node] = _Details(note, at_s, {view.rank: view for view in views})

    def columns(self, near: RankColumns) -> RankColumns:
        """All ranks on other nodes behind this node's own, for a look at the job."""
        return self._ranks.columns(near)

    def told(self) -> dict[int, RankView]:
        """By rank, those whose views were asked for and have come."""
        views: dict[int, RankView] = {}
        for node, details in self._details.items():
            if details is not None and self._is_newest(node, details):
                views |= details.views
        return views

    def _is_newest(self, node: int, details: _Details) -> bool:
        age_s = self._ranks.at_s[node] - details.at_s
        return bool(age_s <= _OUTDATED_SUMMARIES * self.share_every_s)

    def all(self, now_s: float) -> tuple[RankView, ...]:
        """All ranks on other nodes; those of a silent node are marked as absent."""
        return self._of_nodes(self._ranks.nodes, now_s)

    def notable(self, now_s: float) -> tuple[RankView, ...]:
        """Those of all that were asked for, and those that are gone, with others of their nodes."""
        nodes = {*self._details, *self._ranks.nodes_with_gone()}
        return self._of_nodes(sorted(nodes), now_s)

    def _of_nodes(self, nodes: Iterable[int], now_s: float) -> tuple[RankView, ...]:
        views: list[RankView] = []
        for node in nodes:
            silent_s = now_s - float(self._ranks.received_s[node])
            if silent_s > SILENT_NODE_S:
                reason = f"node {node} has not answered for {silent_s:.0f} s"
                views += [replace(view, absent_reason=reason) for view in self._views(node)]
            else:
                views += self._views(node)
        return tuple(views)

    def node_of(self) -> dict[int, int]:
        """On which of the other nodes each rank runs."""
        return self._ranks.node_of()

    def _views(self, node: int) -> list[RankView]:
        """Of one node: as they were told, else what its summary shows."""
        details = self._details.get(node)
        told = {} if details is None or not self._is_newest(node, details) else details.views
        return [told.get(view.rank, view) for view in self._ranks.views(node)]

    def without_answer(self, nodes: Sequence[int], patience_s: float) -> dict[int, RankView]:
        """By rank, the ranks of nodes that did not send their capture: their summary is outdated.

        Args:
            nodes: that did not answer.
            patience_s: how long they were waited for, s.
        """
        views: dict[int, RankView] = {}
        for node in nodes:
            reason = no_answer([node], patience_s)
            for view in self._views(node):
                views[view.rank] = replace(view, absent_reason=view.absent_reason or reason)
        return views


def no_answer(nodes: Sequence[int], patience_s: float) -> str:
    """The sentence about nodes that did not send their capture."""
    who = f"node{'s' if len(nodes) > 1 else ''} {RankSet.of(nodes).fold()}"
    return f"{who} did not answer within {patience_s:g} s"
