"""relkit slurm: jobs and nodes of a Slurm cluster."""

from __future__ import annotations

import click

from relkit.command_group import CommandGroup
from relkit.commands.subcommands.slurm_check_node import check_node
from relkit.commands.subcommands.slurm_render import render


@click.group(cls=CommandGroup)
def slurm() -> None:
    """Make job scripts for Slurm that save before their time is over; check its nodes.

    \b
    Examples:
      relkit slurm render --nodes 4 --spares 1 --gpus 8 --time 24:00:00 train.py > job.sh
      relkit slurm check-node --when prolog --drain
    """


slurm.add_command(render)
slurm.add_command(check_node)
