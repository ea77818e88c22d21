"""relkit stacks: capture the stacks of all ranks, and merge them into flame SVGs."""

from __future__ import annotations

import click

from relkit.command_group import CommandGroup
from relkit.commands.subcommands.stacks_dump import dump
from relkit.commands.subcommands.stacks_merge import merge


@click.group(cls=CommandGroup)
def stacks() -> None:
    """Capture the stacks of all ranks, and merge them into flame SVGs.

    \b
    Examples:
      relkit stacks dump --job my-run
      relkit stacks merge /root/timeline
    """


stacks.add_command(dump)
stacks.add_command(merge)
