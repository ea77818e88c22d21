"""relkit slurm: jobs and nodes of a Slurm cluster."""

from __future__ import annotations

import click

from relkit.command_group import CommandGroup
from relkit.commands.subcommands.slurm_render import render


@click.group(cls=CommandGroup)
def slurm() -> None:
    """Make job scripts for Slurm that save before their time is over, and resume.

    \b
    Example:
      relkit slurm render --nodes 4 --spares 1 --gpus 8 --time 24:00:00 train.py > job.sh
    """


slurm.add_command(render)
