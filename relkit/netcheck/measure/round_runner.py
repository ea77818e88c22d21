"""Measures rounds of disjoint pairs through the agents, each step with a deadline."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from relkit.fleet.agent_rpc import AgentRpc, Message
from relkit.netcheck.measure.options import GRACE_S, CheckOptions
from relkit.netcheck.model import Edge, Failure, NodeFacts
from relkit.netcheck.record import positive, read_edge, read_failure

_END_S = 2.0

Pair = tuple[str, str]


class RoundRunner:
    """Runs rounds and keeps their edges.

    Args:
        rpc: to the agents.
        addresses: node -> the address that the user gave it.
        facts: of all nodes; an address that a node reports itself is preferred.
        probe: name of the probe.
        options: see CheckOptions.
    """

    def __init__(
        self,
        rpc: AgentRpc,
        addresses: Mapping[str, str],
        facts: Sequence[NodeFacts],
        probe: str,
        options: CheckOptions,
    ) -> None:
        self._rpc = rpc
        self._addresses = {**addresses, **{f.name: f.address for f in facts if f.address}}
        self._probe_name = probe
        self._options = options
        self.done = 0
        self.edges: list[Edge] = []
        self.unauthenticated = {f.name: f.unauthenticated_connections for f in facts}

    def run(self, pairs: Sequence[Pair], *, under_load: bool = False) -> None:
        """One round: one node of each pair listens, the other connects, measures and reports.

        Args:
            pairs: disjoint.
            under_load: see Edge.
        """
        begun = len(self.edges)
        common = {
            "round": self.done,
            "secret": secrets.token_hex(16),
            "probe": self._probe_name,
        }
        listening = self._listen(pairs, common)
        self._probe(listening, common)
        self._end([node for _, node, _ in listening if node in self._rpc.live], common)
        if under_load:
            self.edges[begun:] = [replace(edge, under_load=True) for edge in self.edges[begun:]]
        self.done += 1

    def _listen(
        self, pairs: Sequence[Pair], common: Mapping[str, Any]
    ) -> list[tuple[str, str, Message]]:
        """(connector, acceptor, the acceptor's listener) of the pairs that can be measured."""
        able = [pair for pair in pairs if self._both_alive(pair)]
        # The listener outlives the slowest probe, and not much more.
        life_s = 2 * self._options.timeout_s + 2 * GRACE_S
        replies = self._rpc.ask(
            "listen",
            {**common, "timeout_s": life_s},
            {
                acceptor: {"peer": connector, "peer_address": self._addresses[connector]}
                for connector, acceptor in able
            },
            from_each={acceptor: 1 for _, acceptor in able},
            deadline_s=self._options.timeout_s,
        )
        ready = []
        for connector, acceptor in able:
            pair = (connector, acceptor)
            reply = next(iter(replies.get(acceptor, [])), {})
            if reply.get("op") == "listening":
                ready.append((connector, acceptor, reply))
            elif reply:
                detail = str(reply.get("detail", "")) or "the listener could not be opened"
                self._fail(pair, _reply_failure(reply), detail)
            else:
                detail = self._rpc.lost.get(acceptor, "")
                self._fail(pair, Failure.NO_AGENT, detail, acceptor)
        return ready

    def _both_alive(self, pair: Pair) -> bool:
        for node in pair:
            if node not in self._rpc.live:
                self._fail(pair, Failure.NO_AGENT, self._rpc.lost.get(node, ""), node)
                return False
        return True

    def _probe(self, ready: Sequence[tuple[str, str, Message]], common: Mapping[str, Any]) -> None:
        options = self._options
        to: dict[str, dict[str, Any]] = {}
        for connector, acceptor, reply in ready:
            listener = {"address": reply.get("address"), "port": reply.get("port")}
            for role, node, peer in (
                ("connect", connector, acceptor),
                ("accept", acceptor, connector),
            ):
                way = {"peer": peer, "peer_address": self._addresses[peer]}
                to[node] = {"role": role, **way, **listener}
        replies = self._rpc.ask(
            "probe",
            {
                **common,
                "sizes": list(options.sizes_bytes),
                "streams": options.streams,
                "duration_s": options.duration_s,
                "both_ways": options.both_ways,
                "timeout_s": options.timeout_s,
            },
            to,
            # Only the connecting end reports: one edge for each direction.
            from_each={connector: 2 for connector, _, _ in ready},
            deadline_s=options.timeout_s + GRACE_S,
        )
        for connector, acceptor, _ in ready:
            self._keep((connector, acceptor), replies.get(connector, ()))

    def _keep(self, pair: Pair, replies: Sequence[Message]) -> None:
        """The two directed edges of a pair; a direction that nobody reported has failed."""
        acceptor = pair[1]
        edges: dict[Pair, Edge] = {}
        errors = [message for message in replies if message.get("op") == "error"]
        for message in replies:
            edge = read_edge(message.get("edge"))
            if edge is not None and {edge.source, edge.target} == set(pair):
                edges[edge.source, edge.target] = replace(edge, round=self.done)
        if acceptor in self._rpc.lost and acceptor not in self._rpc.live:
            edges = {
                way: replace(edge, accused=acceptor) if edge.failure else edge
                for way, edge in edges.items()
            }
        self.edges += edges.values()
        lost = next((node for node in pair if node in self._rpc.lost), "")
        for way in (pair, pair[::-1]):
            if way in edges:
                continue
            if lost:
                failure, detail = Failure.NO_AGENT, self._rpc.lost[lost]
            elif errors:
                failure = _reply_failure(errors[0])
                detail = str(errors[0].get("detail", "the agent reported an error"))
            else:
                failure, detail = Failure.DEADLINE, "the connecting end did not report in time"
            self._add_failed(way, failure, detail, lost)

    def _end(self, acceptors: Sequence[str], common: Mapping[str, Any]) -> None:
        """Close the listeners of the round, and take over their counts."""
        ended = self._rpc.ask(
            "end",
            common,
            {node: {} for node in acceptors},
            from_each=dict.fromkeys(acceptors, 1),
            deadline_s=_END_S,
            silent_is_lost=False,
        )
        for node, messages in ended.items():
            for message in messages:
                # The agent counts over all its rounds.
                self.unauthenticated[node] = int(positive(message.get("unauthenticated")))

    def _fail(self, pair: Pair, failure: Failure, detail: str, accused: str = "") -> None:
        for way in (pair, pair[::-1]):
            self._add_failed(way, failure, detail, accused)

    def _add_failed(self, way: Pair, failure: Failure, detail: str, accused: str) -> None:
        source, target = way
        self.edges.append(
            Edge(
                source,
                target,
                self.done,
                self._probe_name,
                failure=failure,
                detail=detail,
                accused=accused,
            )
        )


def _reply_failure(reply: Message) -> Failure:
    """The failure that an agent's error reply means: of the network, or of the probe itself."""
    return read_failure(reply.get("failure")) or Failure.PROBE_ERROR
