"""torchrun's options for a job whose nodes meet at a given point."""

from __future__ import annotations

import argparse
import socket
from collections.abc import Mapping

from relkit.hosts import NodeList
from relkit.launch.peers.find import NodeFacts, check_count, find
from relkit.launch.peers.node_list import first_of
from relkit.launch.peers.rendezvous_host import RendezvousHost
from relkit.launch.peers.slurm_address import slurm_address

_THIS_NODE = NodeFacts(socket.getfqdn, slurm_address)
_DEFAULT_NNODES, _DEFAULT_ID = "1:1", "none"


def join_peers(
    options: argparse.Namespace,
    nodes: NodeList | None,
    environ: Mapping[str, str],
    facts: NodeFacts = _THIS_NODE,
    spares: int = 0,
) -> RendezvousHost:
    """Find out where the nodes meet, and set torchrun's options so that they do.

    Args:
        options: of torchrun, which name no host; rdzv_backend, rdzv_endpoint, rdzv_id and rdzv_conf
            are set, and nnodes where only `nodes` says how many there are.
        nodes: of --nodes; None without it.
        environ: of this process; facts: of this node.
        spares: launchers beyond nnodes.

    Raises:
        UsageProblem: it cannot be found out.
    """
    if nodes is None:
        low, high = _range(options.nnodes)
        point = find(environ, facts, min_nodes=low, max_nodes=high, spares=spares)
    else:
        if options.nnodes == _DEFAULT_NNODES:
            options.nnodes = str(max(1, len(nodes.nodes) - spares))
        point = first_of(nodes, [options.training_script, *options.training_script_args])
        low, _ = _range(options.nnodes)
        check_count(point, min_nodes=low, max_nodes=max(low, point.nodes - spares), spares=spares)
    options.rdzv_backend, options.rdzv_endpoint = "c10d", point.endpoint
    if options.rdzv_id == _DEFAULT_ID and point.job_id:
        options.rdzv_id = point.job_id
    if point.is_first is not None and "is_host" not in options.rdzv_conf:
        # Otherwise torch compares names and addresses, which a pod's or a container's may fail.
        is_host = f"is_host={str(point.is_first).lower()}"
        options.rdzv_conf = ",".join(filter(None, (options.rdzv_conf, is_host)))
    return point


def _range(nnodes: str) -> tuple[int, int]:
    low, _, high = nnodes.partition(":")
    return int(low), int(high or low)
