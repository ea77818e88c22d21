"""The controller: rounds of disjoint pairs over a fleet's channel, each step with a deadline."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from relkit.fleet.channel import Answer, Channel
from relkit.hosts import NodeSpec
from relkit.netcheck.device_score import DeviceScore
from relkit.netcheck.measure.agent_rpc import Message, Talk
from relkit.netcheck.measure.device_scores import DeviceScores
from relkit.netcheck.measure.schedule import Schedule
from relkit.netcheck.model import Edge, Failure, NodeFacts
from relkit.netcheck.record import fitting_fields, positive, read_edge
from relkit.netcheck.solve.outcome import Outcome

Progress = Callable[[int, int, str], None]
"""Called with the rounds done, the most that there can be (0: not known), and what goes on now."""

_GRACE_S = 5.0
_END_S = 2.0
_CLOSE_S = 5.0


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """How the pairs are measured, and how long anything may take.

    Args:
        start_s: for all agents to come up.
        timeout_s: for one probe of one pair, and for any other answer of an agent.
        duration_s: of one bandwidth measurement; streams: connections in parallel.
        sizes_bytes: message sizes, smallest first; the largest gives the bandwidth, and where there
            are several, each one's figures are kept.
        both_ways: also measure both directions at once.
        compute_rounds: how often each node's devices are scored; 0 = not at all.
    """

    start_s: float = 30.0
    timeout_s: float = 20.0
    duration_s: float = 0.5
    streams: int = 4
    sizes_bytes: tuple[int, ...] = (1 << 20,)
    both_ways: bool = False
    compute_rounds: int = 0


def run_check(
    channel: Channel,
    nodes: Sequence[NodeSpec],
    plan: Callable[[Sequence[str]], Schedule],
    *,
    options: CheckOptions | None = None,
    probe: str = "tcp",
    mode: str = "quick",
    groups: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Measure a fleet. The channel is closed when this returns or raises, Ctrl-C included.

    Args:
        channel: not started yet.
        nodes: whom to look at.
        plan: makes the schedule from the names of the nodes that answered.
        options, probe, mode, groups: see CheckOptions and Outcome.
        progress: told of each round.
    """
    options = options or CheckOptions()
    say: Progress = progress or (lambda _done, _most, _what: None)
    names = tuple(node.name for node in nodes)
    try:
        say(0, 0, "starting agents")
        answers = channel.start(nodes, options.start_s)
        talk = Talk(channel, [name for name in names if answers[name].answered])
        say(0, 0, "asking for facts")
        facts = _ask_facts(talk, nodes, answers, options)
        one_host = channel.name == "local" or _is_one_host(answers)
        scores = DeviceScores(one_host)
        for number in range(options.compute_rounds):
            say(number, options.compute_rounds, f"scoring devices, round {number + 1}")
            scores.ask(talk, options.timeout_s + _GRACE_S)
        facts = _with_scores(facts, scores.found)
        rounds = _Rounds(talk, {node.name: node.target for node in nodes}, facts)
        schedule = plan([name for name in names if name in talk.live])
        done = 0
        while pairs := schedule.next_round(rounds.edges):
            say(done, schedule.most_rounds, f"round {done + 1}: {len(pairs)} pairs")
            rounds.run(done, pairs, probe, options)
            done += 1
        say(done, done, "done")
    finally:
        channel.close(_CLOSE_S)
    counted = [replace(f, strangers=rounds.strangers.get(f.name, f.strangers)) for f in facts]
    return Outcome(
        nodes=names,
        facts=tuple(counted),
        edges=tuple(rounds.edges),
        lost=dict(talk.lost),
        groups=dict(groups or {}),
        twins=() if one_host else _twins(answers),
        one_host=one_host,
        mode=mode,
        probe=probe,
        rounds=done,
        scores=scores.found,
        score_errors=dict(scores.errors),
    )


def _is_one_host(answers: Mapping[str, Answer]) -> bool:
    """Every agent answered from one network stack, as in a job that is tried out on one host."""
    behind = [str(a.hello.get("machine", "")) for a in answers.values() if a.answered]
    return len(behind) > 1 and bool(behind[0]) and len(set(behind)) == 1


def _twins(answers: Mapping[str, Answer]) -> tuple[tuple[str, ...], ...]:
    """Names behind which the same network stack answered."""
    behind: dict[str, list[str]] = {}
    for name, answer in answers.items():
        machine = str(answer.hello.get("machine", ""))
        if answer.answered and machine:
            behind.setdefault(machine, []).append(name)
    return tuple(tuple(names) for names in behind.values() if len(names) > 1)


def _ask_facts(
    talk: Talk,
    nodes: Sequence[NodeSpec],
    answers: Mapping[str, Answer],
    options: CheckOptions,
) -> list[NodeFacts]:
    replies = talk.ask(
        "facts",
        {},
        {
            node.name: {"peers": _some_peers([other.target for other in nodes], i)}
            for i, node in enumerate(nodes)
            if node.name in talk.live
        },
        from_each=dict.fromkeys(talk.live, 1),
        deadline_s=options.timeout_s + _GRACE_S,
    )
    found = []
    for node in nodes:
        answer = answers[node.name]
        said = next((m for m in replies.get(node.name, []) if m.get("op") == "facts"), {})
        known = fitting_fields(NodeFacts, said.get("facts"))
        hello = answer.hello
        found.append(
            NodeFacts(
                **{
                    "hostname": str(hello.get("hostname", "")),
                    "address": node.address,
                    **known,
                    "name": node.name,
                    "answered": answer.answered,
                    "detail": answer.detail or known.get("detail", ""),
                    "host_down": answer.host_down,
                    "clock_skew_s": answer.clock_skew_s,
                }
            )
        )
    return found


def _some_peers(addresses: Sequence[str], own: int) -> list[str]:
    """The route to a few peers, near and far in the list, tells the interface to all."""
    count = len(addresses)
    found = {(own + step) % count for step in (1, 2, count // 2)} - {own}
    return [addresses[i] for i in sorted(found)]


def _with_scores(facts: list[NodeFacts], scores: Sequence[DeviceScore]) -> list[NodeFacts]:
    cpu = {score.node: score for score in scores if score.device == "cpu"}
    return [
        replace(
            item,
            compute_gflops=median(cpu[item.name].compute_gflops or (0.0,)),
            memory_gbps=median(cpu[item.name].memory_gbps or (0.0,)),
        )
        if item.name in cpu
        else item
        for item in facts
    ]


class _Rounds:
    """Runs rounds and keeps their edges."""

    def __init__(
        self, talk: Talk, addresses: Mapping[str, str], facts: Sequence[NodeFacts]
    ) -> None:
        self._talk = talk
        self._addresses = {**addresses, **{f.name: f.address for f in facts if f.address}}
        self.edges: list[Edge] = []
        self.strangers: dict[str, int] = {}

    def run(
        self, number: int, pairs: Sequence[tuple[str, str]], probe: str, options: CheckOptions
    ) -> None:
        """One round: every pair listens, connects and reports; nobody waits longer than agreed."""
        common = {"round": number, "secret": secrets.token_hex(16), "probe": probe}
        listening = self._listen(number, pairs, common, options)
        self._probe(number, listening, common, options)
        acceptors = [node for _, node, _ in listening if node in self._talk.live]
        ended = self._talk.ask(
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
                self.strangers[node] = int(positive(message.get("strangers")))

    def _listen(
        self,
        number: int,
        pairs: Sequence[tuple[str, str]],
        common: Mapping[str, Any],
        options: CheckOptions,
    ) -> list[tuple[str, str, Message]]:
        """(connector, acceptor, what the acceptor listens on) of the pairs that can go on."""
        able = [pair for pair in pairs if self._both_alive(number, pair, common)]
        # The listener outlives the slowest probe, and nothing else.
        life_s = 2 * options.timeout_s + 2 * _GRACE_S
        replies = self._talk.ask(
            "listen",
            {**common, "timeout_s": life_s},
            {
                acceptor: {"peer": connector, "peer_address": self._addresses[connector]}
                for connector, acceptor in able
            },
            from_each={acceptor: 1 for _, acceptor in able},
            deadline_s=options.timeout_s,
        )
        ready = []
        for connector, acceptor in able:
            said = next(iter(replies.get(acceptor, [])), {})
            if said.get("op") == "listening":
                ready.append((connector, acceptor, said))
                continue
            pair = (connector, acceptor)
            if said:
                detail = str(said.get("detail", "")) or "the listener could not be opened"
                self._fail(number, pair, common, Failure.PROBE_ERROR, detail, "")
            else:
                detail = self._talk.lost.get(acceptor, "")
                self._fail(number, pair, common, Failure.NO_AGENT, detail, acceptor)
        return ready

    def _both_alive(self, number: int, pair: tuple[str, str], common: Mapping[str, Any]) -> bool:
        for node in pair:
            if node not in self._talk.live:
                detail = self._talk.lost.get(node, "")
                self._fail(number, pair, common, Failure.NO_AGENT, detail, node)
                return False
        return True

    def _probe(
        self,
        number: int,
        ready: Sequence[tuple[str, str, Message]],
        common: Mapping[str, Any],
        options: CheckOptions,
    ) -> None:
        to: dict[str, dict[str, Any]] = {}
        for connector, acceptor, said in ready:
            place = {"address": said.get("address"), "port": said.get("port")}
            for role, node, peer in (
                ("connect", connector, acceptor),
                ("accept", acceptor, connector),
            ):
                way = {"peer": peer, "peer_address": self._addresses[peer]}
                to[node] = {"role": role, **way, **place}
        replies = self._talk.ask(
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
            # Only the connecting side owes figures: one for each direction.
            from_each={connector: 2 for connector, _, _ in ready},
            deadline_s=options.timeout_s + _GRACE_S,
        )
        for connector, acceptor, _ in ready:
            self._take(number, (connector, acceptor), common, replies)

    def _take(
        self,
        number: int,
        pair: tuple[str, str],
        common: Mapping[str, Any],
        replies: Mapping[str, Sequence[Message]],
    ) -> None:
        """The two directed edges of a pair; a direction that nobody reported has failed."""
        connector, acceptor = pair
        found: dict[tuple[str, str], Edge] = {}
        errors = []
        for message in replies.get(connector, ()):
            if message.get("op") == "error":
                errors.append(str(message.get("detail", "the agent reported an error")))
            edge = read_edge(message.get("edge"))
            if edge is not None and {edge.source, edge.target} == {connector, acceptor}:
                found[edge.source, edge.target] = replace(edge, round=number)
        if acceptor in self._talk.lost and acceptor not in self._talk.live:
            found = {
                key: replace(edge, accused=acceptor) if edge.failure else edge
                for key, edge in found.items()
            }
        self.edges += found.values()
        missing = [key for key in (pair, pair[::-1]) if key not in found]
        lost = next((node for node in pair if node in self._talk.lost), "")
        for source, target in missing:
            if lost:
                failure, detail = Failure.NO_AGENT, self._talk.lost[lost]
            elif errors:
                failure, detail = Failure.PROBE_ERROR, errors[0]
            else:
                failure, detail = Failure.DEADLINE, "the connecting side did not report in time"
            self.edges.append(
                Edge(source, target, number, str(common["probe"]), failure=failure,
                     detail=detail, accused=lost)
            )  # fmt: skip

    def _fail(
        self,
        number: int,
        pair: tuple[str, str],
        common: Mapping[str, Any],
        failure: Failure,
        detail: str,
        accused: str,
    ) -> None:
        probe = str(common["probe"])
        self.edges += [
            Edge(source, target, number, probe, failure=failure, detail=detail, accused=accused)
            for source, target in (pair, pair[::-1])
        ]
