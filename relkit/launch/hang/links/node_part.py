"""One node's part in measuring links: it listens for each of its pairs, connects, and measures.

Each pair has two listeners, one at either end: the first turn connects to the lower node, the
second to the higher one, so that a firewall in one direction is not taken for a cut link.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

from relkit.launch.hang.links.notes import Ask, Call, Listening, PairResult
from relkit.launch.job.exchange import LauncherAddress
from relkit.launch.job.node_name import node_name
from relkit.net.listener import Listener
from relkit.net.operator_secret import derive
from relkit.netcheck.measure.probes.base import Plan, ProbeFailed
from relkit.netcheck.measure.probes.tcp import TcpProbe
from relkit.netcheck.measure.round_robin import circle_round, rounds_needed
from relkit.netcheck.model import Edge, Failure

TURNS = 2
# Between the starts of two rounds of pairs.
SLOT_S = 0.5
# One pair, the failing one included.
PROBE_S = 1.5
# One direction.
_FLOW_S = 0.12
_STREAMS = 2
_SIZES = (256 << 10,)
# Nothing came back: what else goes wrong says nothing of the link.
_CUT = (Failure.NO_ANSWER, Failure.REFUSED, Failure.RESET, Failure.NO_ROUTE)
# How much later than one end the other may learn of a turn.
_LATE_S = 0.5


def pairs_of(nodes: tuple[int, ...]) -> tuple[tuple[int, int, int], ...]:
    """All pairs in the order of their numbers: lower node, higher node, and the slot.

    Pairs of one slot have no node in common, so that they do not share a network card.

    Args:
        nodes: ascending.
    """
    return tuple(
        (nodes[min(pair)], nodes[max(pair)], slot)
        for slot in range(rounds_needed(len(nodes)))
        for pair in circle_round(len(nodes), slot)
    )


class NodePart:
    """The listeners of one node, and what it measures through those of the others.

    Args:
        ask: the leader's request, which names this node.
        node: this one's number.
        launcher: where this node's listens, and the key of its links.
        lifetime_s: the listeners end after this time in any case.

    Raises:
        OSError: it cannot listen there.
    """

    def __init__(self, ask: Ask, node: int, launcher: LauncherAddress, lifetime_s: float) -> None:
        self._node, self._address = node, launcher.address
        self._key = derive(launcher.key, "links after a hang", ask.nonce)
        self._end_s = time.monotonic() + lifetime_s
        self._pairs = pairs_of(ask.nodes)
        self._listeners: dict[int, Listener] = {}
        try:
            for number, (low, high, _) in enumerate(self._pairs):
                if node in (low, high):
                    self._listeners[number] = Listener(
                        launcher.address, number, self._key, lifetime_s=lifetime_s
                    )
        except OSError:
            self.close()
            raise

    def listening(self) -> Listening:
        """Where this node listens."""
        ports = {number: listener.port for number, listener in self._listeners.items()}
        return Listening(node_name(), self._address, ports)

    def measure(self, calls: Mapping[int, Call], turn: int) -> dict[int, PairResult]:
        """Do this node's part of one turn.

        Args:
            calls: of all nodes, by pair.

        Returns:
            what it measured as the connecting end, by pair.
        """
        results: dict[int, PairResult] = {}
        threads = []
        for number, call in calls.items():
            if number not in self._listeners:
                continue
            low, high, _ = self._pairs[number]
            accepts = self._node == (low if turn == 0 else high)
            peer = high if self._node == low else low
            threads.append(
                _thread(self._accept, number, peer, call)
                if accepts
                else _thread(self._connect, number, peer, call, results)
            )
        end_s = min(self._end_s, time.monotonic() + turn_s(calls))
        for thread in threads:
            thread.join(max(0.0, end_s - time.monotonic()))
        # One that is late goes on with its own dictionary of results.
        return dict(results)

    def close(self) -> None:
        """Stop listening."""
        for listener in self._listeners.values():
            listener.close()

    def _plan(self, number: int, peer: int, call: Call, timeout_s: float) -> Plan:
        return Plan(
            round=number,
            secret=self._key,
            node=str(self._node),
            peer=str(peer),
            address=call.address,
            port=call.port,
            sizes=_SIZES,
            streams=_STREAMS,
            duration_s=_FLOW_S,
            both_ways=False,
            timeout_s=timeout_s,
        )

    def _accept(self, number: int, peer: int, call: Call) -> None:
        plan = self._plan(number, peer, call, call.slot * SLOT_S + PROBE_S + _LATE_S)
        try:
            TcpProbe().accept(plan, self._listeners[number])
        except ProbeFailed:
            # The connecting end says what it saw.
            return

    def _connect(self, number: int, peer: int, call: Call, results: dict[int, PairResult]) -> None:
        time.sleep(call.slot * SLOT_S)
        measured = TcpProbe().connect(self._plan(number, peer, call, PROBE_S))
        results[number] = _result(measured.edges)


def turn_s(calls: Mapping[int, Call]) -> float:
    """The longest that a turn takes, s."""
    last = max((call.slot for call in calls.values()), default=0)
    return last * SLOT_S + PROBE_S + _LATE_S


def _thread(target: Callable[..., None], *arguments: object) -> threading.Thread:
    thread = threading.Thread(target=target, args=arguments, name="relkit-link", daemon=True)
    thread.start()
    return thread


def _result(edges: tuple[Edge, ...]) -> PairResult:
    failed = next((edge for edge in edges if edge.failure is not Failure.NONE), None)
    if failed is not None:
        return PairResult(failure=f"{failed.failure}", is_cut=failed.failure in _CUT)
    slower = min(edges, key=lambda edge: edge.bandwidth_gbps)
    if not slower.bandwidth_gbps:
        return PairResult(failure="no data arrived")
    return PairResult(slower.bandwidth_gbps * 1000 / 8, slower.latency_p50_us / 1000)
