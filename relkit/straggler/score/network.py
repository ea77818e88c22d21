"""What is between the hosts: slow links and interfaces, by whichever evidence there is."""

from __future__ import annotations

from collections.abc import Sequence

from relkit.straggler.edge_traffic import EdgeTraffic
from relkit.straggler.history_types import LinkRow
from relkit.straggler.model import Verdict
from relkit.straggler.score.edge_rates import EdgeScorer
from relkit.straggler.score.links import Edge, LinkScorer, Transfer

# Edges that are measured at once: the scorer compares each with all others.
_MAX_EDGES = 512


class Network:
    """Counters of connections where the job talks through TCP, else times of transfers.

    Counters tell the edges of one ring apart, and what is slow from the start; where they see
    anything they alone are believed.
    """

    def __init__(self) -> None:
        self._links, self._edges = LinkScorer(), EdgeScorer()
        self._measured: set[Edge] = set()
        self._by_counters: tuple[Verdict, ...] = ()

    def take_traffic(self, step: int, traffic: Sequence[EdgeTraffic], elapsed_s: float) -> None:
        """What hosts have sent each other lately.

        Args:
            step: the job is at; elapsed_s: since the last call.
        """
        kept = []
        for sample in traffic:
            edge = (sample.source, sample.target)
            if edge in self._measured or len(self._measured) < _MAX_EDGES:
                self._measured.add(edge)
                kept.append(sample)
        if kept:
            self._by_counters = self._edges.update(step, kept, elapsed_s)

    def update(self, step: int, transfers: Sequence[Transfer]) -> tuple[Verdict, ...]:
        """Take the transfers of a step, and say which links or hosts are slow after it."""
        by_times = self._links.update(step, transfers)
        return self._by_counters if self._measured else by_times

    def rows(self) -> list[LinkRow]:
        """What is known of each edge, worst first."""
        return self._edges.rows() if self._measured else self._links.rows()
