"""From the options of a fleet to its nodes, and to the channel that reaches them."""

from __future__ import annotations

from collections.abc import Mapping

from relkit.errors import UsageProblem
from relkit.fleet.channel import Channel
from relkit.fleet.kubectl import is_selector, pods, with_addresses
from relkit.fleet.open import open_channel
from relkit.hosts import NodeList, NodeSpec, default_nodes, read_nodes
from relkit.log_lines import say, warning

Fleet = Mapping[str, str | int | float]
"""The values of fleet_options, by name."""


def nodes_of(fleet: Fleet) -> tuple[NodeSpec, ...]:
    """The nodes that --nodes and -x leave; a warning goes to stderr.

    Raises:
        UsageProblem: none is left, or one is not written as a node is.
    """
    listed = _listed(fleet)
    for line in listed.warnings:
        say(warning(line))
    return listed.nodes


def channel_of(fleet: Fleet, node_limit_s: float) -> Channel:
    """The channel of --via, not started yet.

    Args:
        node_limit_s: how long one node may take to answer.
    """
    return open_channel(
        str(fleet["via"]),
        ssh_args=str(fleet["ssh_args"]),
        relkit=str(fleet["relkit"]),
        partition=str(fleet["partition"]),
        slurm_args=str(fleet["slurm_args"]),
        kubectl_args=str(fleet["kubectl_args"]),
        command=str(fleet["command"]),
        fanout=int(fleet["fanout"]),
        node_limit_s=node_limit_s,
    )


def _listed(fleet: Fleet) -> NodeList:
    text, exclude = str(fleet["nodes"]), str(fleet["exclude"])
    kubectl_args = str(fleet["kubectl_args"])
    if fleet["via"] == "kubectl":
        if is_selector(text):
            return _without(NodeList(pods(text, kubectl_args)), exclude)
        listed = read_nodes(text, exclude=exclude) if text else _without(default_nodes(), exclude)
        # The name of a pod cannot be resolved by other pods: probes need addresses.
        return NodeList(with_addresses(listed.nodes, kubectl_args), listed.warnings)
    return read_nodes(text, exclude=exclude) if text else _without(default_nodes(), exclude)


def _without(listed: NodeList, exclude: str) -> NodeList:
    out = {node.name for node in read_nodes(exclude).nodes} if exclude else set()
    kept = tuple(node for node in listed.nodes if node.name not in out)
    if not kept:
        raise UsageProblem("no node is left", next_step="Name nodes with --nodes.")
    return NodeList(kept, listed.warnings)
