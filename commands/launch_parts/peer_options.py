"""`relkit launch` on several nodes without an endpoint: --nodes, or what a scheduler says."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Sequence

import click

from relkit.commands.shared.options import Decorated
from relkit.errors import UsageProblem
from relkit.launch.options import is_left_open, needs_peers


def nodes_option(function: Decorated) -> Decorated:
    """--nodes."""
    return click.option(
        "--nodes",
        metavar="FILE|SET",
        help="The nodes of the job, the same list on each: a file with one host per line, or a "
        "set like 'node[1-4]'. They meet on the first one. Not needed in a Slurm step, with mpirun "
        "in a batch system, in Kubernetes' job controllers, nor with --rdzv-endpoint.",
    )(function)


def meet(options: Namespace, typed: Sequence[str], nodes: str | None, spares: int = 0) -> str:
    """Set torchrun's rendezvous where the command line does not.

    Args:
        options: of torchrun; typed: the command line, to see what was left to a default.
        nodes: --nodes; None without it.
        spares: launchers beyond --nnodes.

    Returns:
        a line that says where the nodes meet; "" where the command line does.

    Raises:
        UsageProblem: it is set twice, or it cannot be found out.
    """
    if nodes is not None and not is_left_open(options, typed):
        raise UsageProblem(
            "--nodes says where the nodes meet, and so does another option",
            next_step="Leave out --nodes, or --rdzv-endpoint, --master-addr, --master-port, "
            "--node-rank, --standalone and any --rdzv-backend but c10d.",
        )
    needs = needs_peers(options, typed) or (spares and is_left_open(options, typed))
    if nodes is None and not needs:
        return ""
    # `relkit launch --help` does not wait for these.
    from relkit.hosts import read_nodes
    from relkit.launch.peers.join import join_peers

    known = None if nodes is None else read_nodes(nodes)
    point = join_peers(options, known, os.environ, spares=spares)
    who = "1 node" if options.nnodes == "1" else f"{options.nnodes} nodes"
    if spares:
        who += f" and {spares} spare{'s' * (spares > 1)}"
    meet_word = "meets" if who == "1 node" else "meet"
    return f"{who} {meet_word} at {point.endpoint} ({point.source})"
