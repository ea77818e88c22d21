"""Which edge or interface is slow, by the rate at which each connection is confirmed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from relkit.straggler.edge_traffic import EdgeTraffic
from relkit.straggler.history_types import LinkRow, worst_first
from relkit.straggler.model import Cause, Subject, Verdict
from relkit.straggler.score.links import Edge
from relkit.straggler.score.sequential import ShiftTest

# Logarithms of how many times longer a byte takes: half as long again, twice, four times.
_SHIFTS = (0.4, 0.7, 1.4)
_MIN_RATIO = 1.5
_SIGMA, _SIGMA_WEIGHT, _RATE = 0.35, 6.0, 1.0 / 16.0
# The kernel counts busy time in ticks of up to 10 ms: some of them are waited for, but not for
# long, as a quick edge is hardly ever seen busy.
_MIN_BUSY_S = 0.04
_WAITED_S = 0.9
_TICK_S = 0.01
# How quick an edge is that is busy for less than this share of the time does not matter.
_SOFT = 0.1
_MIN_BYTES = 64 << 10
# Edges with less of the traffic, or hardly ever busy, cost the job nothing.
_MIN_SHARE = 0.1
_MIN_BUSY_SHARE = 0.04
_BASELINE = 8
_MIN_OTHERS = 2
_CLEAR = 0.25
_AS_SLOW = 0.5
_FALSE_ALARM, _HORIZON = 0.01, 100.0


@dataclass(slots=True)
class _Sample:
    """What went over an edge since its last test."""

    acked: int = 0
    busy_s: float = 0.0
    waited_s: float = 0.0

    @property
    def ready(self) -> bool:
        """Enough has come together for a test."""
        long = self.busy_s >= _MIN_BUSY_S or self.waited_s >= _WAITED_S
        return long and self.acked >= _MIN_BYTES


@dataclass(slots=True)
class _Edge:
    test: ShiftTest
    sample: _Sample = field(default_factory=_Sample)
    samples: int = 0
    byte_s: float = 0.0
    mbit_s: float = 0.0
    past_s: float = 0.0
    log_ratio: float = 0.0
    variance: float = _SIGMA**2
    cost_s: float = 0.0
    retransmits: int = 0
    traffic: float = 0.0
    busy_share: float = 0.0

    @property
    def evidence(self) -> float:
        return float(self.test.best()[0][0])


def by_host(reports: Mapping[str, Sequence[EdgeTraffic]]) -> tuple[EdgeTraffic, ...]:
    """Addresses as host names: whose an address is, is known from who sends from it.

    Args:
        reports: host -> what its ranks sent; addresses that nobody sends from are left out.
    """
    owner = {sample.source: host for host, sent in reports.items() for sample in sent}
    totals: dict[Edge, EdgeTraffic] = {}
    for host, sent in reports.items():
        for sample in sent:
            target = owner.get(sample.target, host)
            if target == host:
                continue
            old = totals.get((host, target), EdgeTraffic(host, target, 0, 0.0))
            totals[host, target] = EdgeTraffic(
                host, target, old.acked_bytes + sample.acked_bytes, max(old.busy_s, sample.busy_s),
                old.retransmits + sample.retransmits, max(old.rtt_s, sample.rtt_s),
            )  # fmt: skip
    return tuple(totals.values())


class EdgeScorer:
    """Call update() with what was sent between two looks; it says which edges are slow now.

    An edge's time a byte, while something was under way on it, is held against the median of the
    other edges that carry as much; of fewer than two others, against its own first samples. An
    edge that is slow from the start is found by the first of the two.
    """

    def __init__(self) -> None:
        self._edges: dict[Edge, _Edge] = {}
        self._slow: set[Edge] = set()

    def update(
        self, step: int, traffic: Sequence[EdgeTraffic], elapsed_s: float
    ) -> tuple[Verdict, ...]:
        """Take one interval.

        Args:
            step: the job is at; traffic: of this interval; elapsed_s: its length.

        Returns:
            Links or hosts that are slow after it, costliest first.
        """
        limit = self._limit()
        ready = [edge for new in traffic if (edge := self._add(new, elapsed_s)) is not None]
        max_traffic = max((state.traffic for state in self._edges.values()), default=0.0)
        for edge in ready:
            state = self._edges[edge]
            sample = state.sample
            state.byte_s = (sample.busy_s + _SOFT * sample.waited_s) / sample.acked
            state.mbit_s = 8e-6 * sample.acked / max(sample.busy_s, _TICK_S)
            state.busy_share = min(1.0, sample.busy_s / max(sample.waited_s, 1e-9))
        for edge in ready:
            self._test(step, edge, max_traffic)
        slow = set()
        for edge, state in self._edges.items():
            share = _CLEAR if edge in self._slow else 1.0
            large = np.exp(state.log_ratio) >= _MIN_RATIO and state.busy_share >= _MIN_BUSY_SHARE
            if state.evidence >= share * limit and (large or edge in self._slow):
                slow.add(edge)
        self._slow = slow
        return self._explain(limit)

    def rows(self) -> list[LinkRow]:
        """What is known of each edge, worst first."""
        limit = self._limit()
        rows = [
            LinkRow(*edge, float(np.exp(state.log_ratio)), state.evidence / limit, state.cost_s)
            for edge, state in self._edges.items()
            if state.samples
        ]
        return sorted(rows, key=worst_first)

    def _limit(self) -> float:
        tests = max(1, len(self._edges)) * len(_SHIFTS)
        return float(np.log(tests * _HORIZON / _FALSE_ALARM))

    def _add(self, new: EdgeTraffic, elapsed_s: float) -> Edge | None:
        """The edge, where it is ready for a test."""
        edge = (new.source, new.target)
        if edge not in self._edges:
            self._edges[edge] = _Edge(ShiftTest(_SHIFTS, (1,), 20.0))
        state = self._edges[edge]
        if state.sample.ready:
            state.sample = _Sample()
        state.sample.acked += new.acked_bytes
        state.sample.busy_s += max(0.0, new.busy_s)
        state.sample.waited_s += elapsed_s
        state.retransmits += new.retransmits
        state.traffic += _RATE * (new.acked_bytes / max(elapsed_s, 1e-9) - state.traffic)
        return edge if state.sample.ready else None

    def _test(self, step: int, edge: Edge, max_traffic: float) -> None:
        state = self._edges[edge]
        if state.traffic < _MIN_SHARE * max_traffic:
            return
        state.samples += 1
        others = [
            other.byte_s
            for key, other in self._edges.items()
            if key != edge and other.byte_s and other.traffic >= _MIN_SHARE * max_traffic
        ]
        usual_s = float(np.median(others)) if len(others) >= _MIN_OTHERS else state.past_s
        if len(others) < _MIN_OTHERS and state.samples <= _BASELINE:
            state.past_s += (state.byte_s - state.past_s) / state.samples
            return
        if usual_s <= 0.0:
            return
        slowdown = float(np.clip(np.log(state.byte_s / usual_s), -3.0, 3.0))
        sigma = np.sqrt(np.array([max(state.variance, 0.01)]))
        state.test.update(step, np.array([slowdown]), sigma)
        # The spread is learnt around the edge's own mean, so that a slow one stays precise.
        off = min(abs(slowdown - state.log_ratio), 3.0 * float(sigma[0]))
        weight = 1.0 / (min(state.samples, 1.0 / _RATE) + _SIGMA_WEIGHT)
        state.variance += weight * (off**2 - state.variance)
        state.log_ratio += max(0.25, 1.0 / state.samples) * (slowdown - state.log_ratio)
        lost_s = state.sample.busy_s * max(0.0, 1.0 - usual_s / state.byte_s)
        state.cost_s = state.cost_s + lost_s if state.evidence > 0.0 else 0.0

    def _explain(self, limit: float) -> tuple[Verdict, ...]:
        """A host where all that it sends or gets is slow with two others at least, else a link."""
        verdicts: list[Verdict] = []
        # Behind a slow edge others may look slower than they are: nothing is said of these.
        worst_log = max((self._edges[edge].log_ratio for edge in self._slow), default=0.0)
        min_log = min(worst_log, _AS_SLOW * worst_log)
        left = {edge for edge in self._slow if self._edges[edge].log_ratio >= min_log}
        # The edges of one interface reach the limit one after the other.
        doubtful = {
            edge
            for edge, state in self._edges.items()
            if state.evidence >= _CLEAR * limit
            and state.log_ratio >= max(np.log(_MIN_RATIO), _AS_SLOW * worst_log)
        }
        while left:
            hosts = sorted({end for edge in left for end in edge})
            best = max(hosts, key=lambda host: len(self._of(host, left | doubtful)))
            taken = self._of(best, left | doubtful)
            if len({end for edge in taken for end in edge}) > 2:
                verdicts.append(self._verdict(Subject.HOST, (best,), taken, limit))
                left -= taken
                doubtful -= taken
                continue
            worst = max(left, key=lambda edge: (self._edges[edge].log_ratio, edge))
            back = {edge for edge in left if edge == worst[::-1]}
            verdicts.append(self._verdict(Subject.LINK, worst, {worst} | back, limit))
            left -= {worst} | back
        return tuple(sorted(verdicts, key=lambda verdict: -verdict.cost_s))

    def _of(self, host: str, slow: set[Edge]) -> set[Edge]:
        """Slow edges that the host's interface explains: those of a direction without a fit one."""
        edges: set[Edge] = set()
        for end in (0, 1):
            mine = {
                edge for edge, state in self._edges.items() if edge[end] == host and state.samples
            }
            fit = {edge for edge in mine if self._edges[edge].log_ratio < np.log(_MIN_RATIO)}
            if not fit:
                edges |= mine & slow
        return edges

    def _verdict(
        self, subject: Subject, ends: tuple[str, ...], edges: set[Edge], limit: float
    ) -> Verdict:
        worst = max(edges, key=lambda edge: self._edges[edge].log_ratio)
        state = self._edges[worst]
        ratio = float(np.exp(state.log_ratio))
        others = sum(1 for each in self._edges.values() if each.samples) - 1
        against = f"the median of {others} other edges" if others >= _MIN_OTHERS else "its past"
        reasons = [
            f"{worst[0]} to {worst[1]} takes {ratio:.1f} times as long per byte as {against}",
            f"it passes {state.mbit_s:.3g} Mbit/s while busy,"
            f" for {state.busy_share:.0%} of the time",
        ]
        if subject is Subject.HOST:
            reasons.append(
                f"{len(edges)} edges of {ends[0]} are slow, with more than one other host"
            )
        if state.retransmits:
            reasons.append(f"{state.retransmits} segments were retransmitted on it")
        evidence = max(self._edges[edge].evidence for edge in edges) / limit
        onset = min(int(self._edges[edge].test.best()[1][0]) for edge in edges)
        return Verdict(
            subject, Cause.NETWORK, ratio - 1.0, 0.95 * (1.0 - float(np.exp(-3.0 * evidence))),
            onset, max(self._edges[edge].cost_s for edge in edges), tuple(reasons), ends=ends,
        )  # fmt: skip
