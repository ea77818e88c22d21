"""`relkit launch` on several nodes without an endpoint: --nodes, or what a scheduler says."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Sequence

import click

from relkit.commands._seconds import Decorated
from relkit.errors import UsageProblem
from relkit.hosts import read_nodes
from relkit.launch.options import OwnOption, names_a_host, needs_peers
from relkit.launch.peers.join import join_peers

OWN = (OwnOption(("--nodes",)),)
_TYPED = "relkit.launch.peers.typed"


def nodes_option(function: Decorated) -> Decorated:
    """--nodes."""
    return click.option(
        "--nodes",
        metavar="FILE|SET",
        help="The nodes of the job, the same list on each: a file with a host a line, or a set "
        "like 'node[1-4]'. They meet on the first one. Not needed under Slurm, mpirun and "
        "Kubernetes' job controllers, nor with --rdzv-endpoint.",
    )(function)


def keep_typed(ctx: click.Context, args: Sequence[str]) -> None:
    """Remember the command line, to see later what was left to a default."""
    ctx.meta[_TYPED] = tuple(args)


def meet(ctx: click.Context, options: Namespace, nodes: str | None) -> str:
    """Set torchrun's rendezvous where the command line does not.

    Returns:
        a line that says where the nodes meet; "" where the command line does.

    Raises:
        UsageProblem: it is set twice, or it cannot be found out.
    """
    typed = ctx.meta[_TYPED]
    if nodes is not None and (options.standalone or names_a_host(options, typed)):
        raise UsageProblem(
            "--nodes says where the nodes meet, and so does another option",
            next_step="Leave out --nodes, or --rdzv-endpoint, --master-addr and --standalone.",
        )
    if nodes is None and not needs_peers(options, typed):
        return ""
    point = join_peers(options, None if nodes is None else read_nodes(nodes), os.environ)
    return f"{options.nnodes} nodes meet at {point.endpoint} ({point.source})"
