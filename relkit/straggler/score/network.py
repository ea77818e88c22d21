"""What is between the hosts: slow links and interfaces, by whichever evidence there is."""

from __future__ import annotations

from collections.abc import Sequence

from relkit.straggler.model import Verdict
from relkit.straggler.score.edge_rates import EdgeScorer, EdgeTraffic
from relkit.straggler.score.links import Edge, LinkScorer, Transfer

# Edges that are followed at once: the scorer compares each with all others.
_MOST_EDGES = 512


class Wires:
    """Counters of connections where the job talks through TCP, else times of transfers.

    Counters tell the edges of one ring apart, and what is slow from the start; where they see
    anything they alone are believed.
    """

    def __init__(self) -> None:
        self._links, self._edges = LinkScorer(), EdgeScorer()
        self._followed: set[Edge] = set()
        self._told: tuple[Verdict, ...] = ()

    def take_traffic(self, step: int, traffic: Sequence[EdgeTraffic], elapsed_s: float) -> None:
        """What hosts have sent each other lately.

        Args:
            step: the job is at; elapsed_s: since the last call.
        """
        kept = []
        for one in traffic:
            edge = (one.source, one.target)
            if edge in self._followed or len(self._followed) < _MOST_EDGES:
                self._followed.add(edge)
                kept.append(one)
        if kept:
            self._told = self._edges.update(step, kept, elapsed_s)

    def update(self, step: int, transfers: Sequence[Transfer]) -> tuple[Verdict, ...]:
        """Take the transfers of a step, and say which links or hosts are slow after it."""
        found = self._links.update(step, transfers)
        return self._told if self._followed else found

    def rows(self) -> list[tuple[str, str, float, float, float]]:
        """(from, to, time against the usual, share of the evidence needed, s lost), worst first."""
        return self._edges.rows() if self._followed else self._links.rows()
