"""What ranks of this node send to other hosts, and the same of all nodes on node 0."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from relkit.launch.job.settings import LocalRank, Log
from relkit.straggler.collect.socket_rates import SocketRates
from relkit.straggler.edge_traffic import EdgeTraffic
from relkit.straggler.score.edge_rates import by_host

_EVERY_S = 1.0


class EdgeLooker:
    """Reads the kernel's counters of the connections of this node's ranks, once a second.

    Args:
        log: one line to the terminal; rates: where the counters come from.
    """

    def __init__(self, log: Log, rates: SocketRates | None = None) -> None:
        self._log, self._rates = log, rates or SocketRates()
        self._next_s = float("-inf")
        self._given_up = False

    def look(self, ranks: Iterable[LocalRank], now_s: float) -> tuple[EdgeTraffic, ...]:
        """What has been sent since the last look; () where it is not time for another one."""
        if now_s < self._next_s or self._given_up:
            return ()
        self._next_s = now_s + _EVERY_S
        try:
            return self._rates.look(rank.pid for rank in ranks)
        except OSError as error:
            self._given_up = True
            self._log(
                f"slow links are judged by the times of collectives alone: the kernel does not "
                f"report what its connections send ({error.strerror or error})"
            )
            return ()


class EdgeReports:
    """Node 0: puts together what all nodes have sent."""

    def __init__(self) -> None:
        self._sent: dict[str, dict[tuple[str, str], EdgeTraffic]] = {}
        self._since_s: float | None = None

    def add(self, host: str, sent: Sequence[EdgeTraffic]) -> None:
        """A report of a host; it may be one of several of a second."""
        mine = self._sent.setdefault(host, {})
        for sample in sent:
            before = mine.get((sample.source, sample.target))
            mine[sample.source, sample.target] = sample if before is None else dataclasses.replace(
                sample,
                acked_bytes=before.acked_bytes + sample.acked_bytes,
                busy_s=before.busy_s + sample.busy_s,
                retransmits=before.retransmits + sample.retransmits,
            )  # fmt: skip

    def take(self, now_s: float) -> tuple[tuple[EdgeTraffic, ...], float]:
        """(traffic between hosts, the time that it took, s) once a second; ((), 0.0) before."""
        since_s = now_s if self._since_s is None else self._since_s
        if self._since_s is None or now_s - since_s < _EVERY_S:
            self._since_s = since_s
            return (), 0.0
        reports = {host: tuple(sent.values()) for host, sent in self._sent.items()}
        self._sent, self._since_s = {}, now_s
        return by_host(reports), now_s - since_s
