"""Runs a check: starts the agents, asks for facts and scores, measures rounds of pairs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from relkit.fleet.agent_rpc import AgentRpc, Message
from relkit.fleet.channel import Answer, Channel
from relkit.fleet.identity import alone_on_host, same_machine
from relkit.hosts import NodeSpec
from relkit.netcheck.check_result import CheckResult
from relkit.netcheck.device_score import DeviceScore
from relkit.netcheck.measure.device_rates import MAX_RATES_S, ask_rates
from relkit.netcheck.measure.device_scores import DeviceScores, with_cpu_scores
from relkit.netcheck.measure.fabric import own_settings
from relkit.netcheck.measure.options import GRACE_S, CheckOptions, for_probe
from relkit.netcheck.measure.probes.choice import choose
from relkit.netcheck.measure.probes.names import AUTO
from relkit.netcheck.measure.round_runner import RoundRunner
from relkit.netcheck.measure.schedule import Schedule
from relkit.netcheck.model import NodeFacts
from relkit.netcheck.record import fitting_fields, read_ports

Progress = Callable[[int, int, str], None]
"""Called with rounds done, the upper limit of rounds (0: not known yet), and the current step."""

_CLOSE_S = 5.0


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
) -> CheckResult:
    """Measure a fleet. The channel is closed when this returns or raises, Ctrl-C included.

    Args:
        channel: not started yet.
        nodes: the nodes to check.
        plan: makes the schedule from the names of the nodes that answered.
        options, mode, groups: see CheckOptions and CheckResult.
        probe: its name, or "auto": the best that all nodes can run.
        progress: called before each step.
    """
    options = options or CheckOptions()
    show: Progress = progress or (lambda _done, _limit, _step: None)
    names = tuple(node.name for node in nodes)
    remark = ""
    try:
        show(0, 0, "starting agents")
        answers = channel.start(nodes, options.start_s)
        rpc = AgentRpc(channel, [n for n in names if answers[n].answered])
        show(0, 0, "asking for facts")
        facts = ask_facts(rpc, nodes, answers, options.timeout_s + GRACE_S)
        one_host = channel.name == "local" or _is_one_host(answers)
        scores = _score(rpc, one_host, options, show)
        facts = with_cpu_scores(facts, scores.all)
        if probe == AUTO:
            probe, remark = choose(
                [item for item in facts if item.name in rpc.live], len(options.sizes_bytes)
            )
            options = for_probe(options, probe)
        rates, rate_errors = _rates(rpc, answers, options, show)
        rounds = RoundRunner(rpc, {node.name: node.target for node in nodes}, facts, probe, options)
        _run_rounds(rounds, plan([name for name in names if name in rpc.live]), show)
    finally:
        channel.close(_CLOSE_S)
    counts = rounds.unauthenticated
    return CheckResult(
        nodes=names,
        facts=tuple(replace(f, unauthenticated_connections=counts[f.name]) for f in facts),
        edges=tuple(edge for edge in rounds.edges if not edge.under_load),
        load_edges=tuple(edge for edge in rounds.edges if edge.under_load),
        lost=dict(rpc.lost),
        groups=dict(groups or {}),
        duplicate_hosts=() if one_host else same_machine(answers),
        one_host=one_host,
        mode=mode,
        probe=probe,
        notes=(remark,) if remark else (),
        rounds=rounds.done,
        scores=scores.all + rates,
        score_errors={**rate_errors, **scores.errors},
    )


def _score(rpc: AgentRpc, one_host: bool, options: CheckOptions, show: Progress) -> DeviceScores:
    scores = DeviceScores(one_host)
    for number in range(options.compute_rounds):
        show(number, options.compute_rounds, f"scoring devices, round {number + 1}")
        scores.ask(rpc, options.timeout_s + GRACE_S)
    return scores


def _rates(
    rpc: AgentRpc, answers: Mapping[str, Answer], options: CheckOptions, show: Progress
) -> tuple[tuple[DeviceScore, ...], Mapping[str, str]]:
    alone = alone_on_host(answers) & set(rpc.live)
    if not options.rate_rounds or len(alone) < 2:
        return (), {}
    show(0, 0, "timing devices")
    return ask_rates(rpc, alone, options.rate_rounds, MAX_RATES_S + GRACE_S)


def _run_rounds(rounds: RoundRunner, schedule: Schedule, show: Progress) -> None:
    while pairs := schedule.next_round(rounds.edges):
        step = f"round {rounds.done + 1}: {len(pairs)} pairs"
        show(rounds.done, schedule.max_rounds, step)
        rounds.run(pairs, under_load=schedule.under_load)
    show(rounds.done, rounds.done, "done")


def _is_one_host(answers: Mapping[str, Answer]) -> bool:
    """All agents answered from one network stack, as in a job that is tried out on one host."""
    answered = [name for name, answer in answers.items() if answer.answered]
    return any(len(names) == len(answered) for names in same_machine(answers))


def ask_facts(
    rpc: AgentRpc, nodes: Sequence[NodeSpec], answers: Mapping[str, Answer], deadline_s: float
) -> list[NodeFacts]:
    """The facts of all nodes, in order; of a node without an agent, why it has none.

    Args:
        rpc: to the agents.
        answers: what each node's agent said at start.
        deadline_s: for all replies.
    """
    targets = [node.target for node in nodes]
    replies = rpc.ask(
        "facts",
        {"settings": own_settings()},
        {
            node.name: {"peers": _some_peers(targets, number)}
            for number, node in enumerate(nodes)
            if node.name in rpc.live
        },
        from_each=dict.fromkeys(rpc.live, 1),
        deadline_s=deadline_s,
    )
    return [_facts(node, answers[node.name], replies.get(node.name, [])) for node in nodes]


def _facts(node: NodeSpec, answer: Answer, replies: Sequence[Message]) -> NodeFacts:
    reply = next((message for message in replies if message.get("op") == "facts"), {})
    plain = reply.get("facts")
    known = {**fitting_fields(NodeFacts, plain), "ports": read_ports(plain)}
    return NodeFacts(
        **{
            "hostname": str(answer.hello.get("hostname", "")),
            "address": node.address,
            **known,
            "name": node.name,
            "answered": answer.answered,
            "detail": answer.detail or known.get("detail", ""),
            "host_down": answer.host_down,
            "clock_skew_s": answer.clock_skew_s,
        }
    )


def _some_peers(targets: Sequence[str], own: int) -> list[str]:
    """A few peers, near and far in the list: the route to them shows the interface to all."""
    count = len(targets)
    chosen = {(own + step) % count for step in (1, 2, count // 2)} - {own}
    return [targets[number] for number in sorted(chosen)]
