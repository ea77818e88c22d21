"""Options of every command that reaches a fleet: whom, by which way, and for how long."""

from __future__ import annotations

import click

from relkit.commands.shared.options import Decorated, FiniteRange, with_options

_OPTIONS = (
    click.option("--nodes", "-w", default="", metavar="NODES",
                 help="A file, a node set such as node[1-8], @group, or - for stdin; with --via "
                 "kubectl also a label selector such as app=trainer.  "
                 "[default: the nodes of the Slurm job]"),
    click.option("--exclude", "-x", default="", metavar="NODES", help="Leave these out."),
    click.option("--via", type=click.Choice(["ssh", "slurm", "kubectl", "command", "local"]),
                 default="ssh", show_default=True, help="How to reach the nodes."),
    click.option("--ssh-args", default="", metavar="ARGS", help="Options passed to ssh."),
    click.option("--kubectl-args", default="", metavar="ARGS", help="Options passed to kubectl."),
    click.option("--slurm-args", default="", metavar="ARGS", help="Options passed to srun."),
    click.option("--partition", default="", help="Slurm partition, outside of a job."),
    click.option("--command", default="", metavar="PREFIX",
                 help="Prefix for --via command, e.g. `ip netns exec {node}`."),
    click.option("--relkit", default="", metavar="PATH", help="The relkit command on the nodes."),
    click.option("--fanout", type=click.IntRange(1, 1024), default=64, show_default=True,
                 help="How many nodes may start at the same time."),
    click.option("--timeout", "timeout_s", type=FiniteRange(1.0, 3600.0), default=20.0,
                 show_default=True, help="Limit for each step of a node or a pair, in seconds."),
)  # fmt: skip


def fleet_options(function: Decorated) -> Decorated:
    """--nodes, -x, --via and what belongs to each way."""
    return with_options(function, _OPTIONS)
