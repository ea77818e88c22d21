"""Asks every node at once how fast its devices compute, several rounds in one go."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from relkit.fleet.agent_rpc import AgentRpc
from relkit.netcheck.device_score import NAME_LIMIT, DeviceScore
from relkit.netcheck.record import positive

# A child that imports torch on a busy host.
MAX_RATES_S = 60.0
_MAX_DEVICES = 64


def ask_rates(
    rpc: AgentRpc, nodes: Collection[str], rounds: int, deadline_s: float
) -> tuple[tuple[DeviceScore, ...], dict[str, str]]:
    """The scores of all devices of these nodes; node -> why it has none, or not of all.

    Args:
        rpc: to the agents.
        rounds: how often each device is timed; deadline_s: for the replies.
    """
    live = sorted(set(nodes) & set(rpc.live))
    replies = rpc.ask(
        "rates",
        {"rounds": rounds, "timeout_s": MAX_RATES_S},
        {node: {} for node in live},
        from_each=dict.fromkeys(live, 1),
        deadline_s=deadline_s,
        silent_is_lost=False,
    )
    scores, errors = list[DeviceScore](), dict[str, str]()
    for node in live:
        reply = next(iter(replies.get(node, [])), {})
        if reply.get("op") != "rates":
            errors[node] = (str(reply.get("detail", "")) or "no scores within the deadline")[:200]
            continue
        scores += _scores(node, reply, rounds)
        if why := reply.get("device_error"):
            errors[node] = str(why)[:200]
    return tuple(scores), errors


def _scores(node: str, reply: Mapping[str, Any], rounds: int) -> list[DeviceScore]:
    rates, models = reply.get("rates"), reply.get("models")
    if not isinstance(rates, Mapping) or not isinstance(models, Mapping):
        return []
    return [
        DeviceScore(node, str(device)[:NAME_LIMIT], good, model=str(models.get(device, ""))[:200])
        for device, values in sorted(rates.items())[:_MAX_DEVICES]
        if isinstance(values, list)
        and (good := tuple(value for value in map(positive, values[:rounds]) if value > 0.0))
    ]
