"""Asks every node for its facts: name, addresses, interface and what its agent said at start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from relkit.fleet.agent_rpc import AgentRpc, Message
from relkit.fleet.channel import Answer
from relkit.hosts import NodeSpec
from relkit.netcheck.model import NodeFacts
from relkit.netcheck.record import fitting_fields


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
        {},
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
    known = fitting_fields(NodeFacts, reply.get("facts"))
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
