"""What the leader knows of the ranks on the other nodes, and how old that knowledge is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from relkit.errors import BadDump
from relkit.hang.model import RankView
from relkit.launch.hang import codec
from relkit.launch.job.exchange import Mailbox
from relkit.ranks import RankSet

# Time between two summaries of a node.
SHARE_EVERY_S = 1.0
# A node whose summary has not changed for this long is treated as not answering.
SILENT_NODE_S = 10.0


def summary_key(node: int) -> str:
    """The key under which a node's summary lies in the mailbox."""
    return f"node/{node}"


@dataclass(frozen=True, slots=True)
class _Summary:
    """The newest summary of one node.

    Args:
        received_s: when it was received, monotonic, s; note: as it came; views: in it.
    """

    received_s: float
    note: bytes
    views: tuple[RankView, ...]


class RemoteViews:
    """The other nodes' ranks as their newest summaries show them.

    Args:
        mailbox: to the other nodes.
    """

    def __init__(self, mailbox: Mailbox) -> None:
        self._mailbox = mailbox
        self._summaries: dict[int, _Summary] = {}
        self._next_s = 0.0

    def receive(self, now_s: float) -> bool:
        """Read the summaries that have changed, where it is time to.

        Returns:
            True where the store was reached.

        Raises:
            ExchangeBroken: the store failed.
        """
        if now_s < self._next_s:
            return False
        self._next_s = now_s + SHARE_EVERY_S
        for node in range(self._mailbox.nodes):
            if node == self._mailbox.node:
                continue
            note = self._mailbox.get(summary_key(node))
            known = self._summaries.get(node)
            if note is None or (known is not None and known.note == note):
                continue
            try:
                views, _ = codec.decode_views(note)
            except BadDump:
                continue
            self._summaries[node] = _Summary(now_s, note, views)
        return True

    def all(self, now_s: float) -> tuple[RankView, ...]:
        """All ranks on other nodes; those of a silent node are marked as absent."""
        views: list[RankView] = []
        for node, summary in sorted(self._summaries.items()):
            silent_s = now_s - summary.received_s
            if silent_s > SILENT_NODE_S:
                reason = f"node {node} has not answered for {silent_s:.0f} s"
                views += [replace(view, absent_reason=reason) for view in summary.views]
            else:
                views += summary.views
        return tuple(views)

    def node_of(self) -> dict[int, int]:
        """On which of the other nodes each rank runs."""
        return {
            view.rank: node for node, summary in self._summaries.items() for view in summary.views
        }

    def without_answer(self, nodes: Sequence[int], patience_s: float) -> dict[int, RankView]:
        """By rank, the ranks of nodes that did not send their capture: their summary is outdated.

        Args:
            nodes: that did not answer.
            patience_s: how long they were waited for, s.
        """
        views: dict[int, RankView] = {}
        for node in nodes:
            reason = no_answer([node], patience_s)
            for view in self._summaries[node].views if node in self._summaries else ():
                views[view.rank] = replace(view, absent_reason=view.absent_reason or reason)
        return views


def no_answer(nodes: Sequence[int], patience_s: float) -> str:
    """The sentence about nodes that did not send their capture."""
    who = f"node{'s' if len(nodes) > 1 else ''} {RankSet.of(nodes).fold()}"
    return f"{who} did not answer within {patience_s:g} s"
