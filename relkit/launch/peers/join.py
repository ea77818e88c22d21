"""torchrun's options for a job whose nodes meet at a given point."""

from __future__ import annotations

import argparse
import hashlib
import re
import socket
import subprocess
from collections.abc import Mapping, Sequence

from relkit.hosts import NodeList
from relkit.launch.peers.find import NodeFacts, check_count, find
from relkit.launch.peers.rendezvous_host import NoRendezvousHost, RendezvousHost

_TIMEOUT_S = 10.0
_ADDRESS = re.compile(r"(?:^|\s)NodeAddr=(\S+)")
_DEFAULT_NNODES, _DEFAULT_ID = "1:1", "none"


def slurm_address(name: str) -> str:
    """The name where it resolves, else the NodeAddr of Slurm's configuration.

    Raises:
        NoRendezvousHost: neither is known on this node.
    """
    try:
        socket.getaddrinfo(name, None)
        return name
    except OSError as error:
        reason = error.strerror or str(error)
    try:
        done = subprocess.run(
            ["scontrol", "--oneliner", "show", "node", name],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            check=False,
        )
        match = _ADDRESS.search(done.stdout)
    except (OSError, subprocess.TimeoutExpired):
        match = None
    if match is None or match[1] == name:
        raise NoRendezvousHost(
            f"Slurm's node {name} cannot be reached under that name from here: {reason}"
        )
    return match[1]


_THIS_NODE = NodeFacts(socket.getfqdn, slurm_address)


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


def first_of(nodes: NodeList, command: Sequence[str]) -> RendezvousHost:
    """The first node of a list; torch finds out which host that is.

    Args:
        nodes: the same on all nodes, in the same order.
        command: the script and its arguments: another job on the same nodes meets elsewhere.
    """
    targets = [spec.target for spec in nodes.nodes]
    words = "\0".join((*targets, "", *command)).encode(errors="surrogateescape")
    job_id = f"nodes-{hashlib.sha256(words).hexdigest()[:16]}"
    return RendezvousHost("--nodes", job_id, targets[0], nodes=len(targets))
