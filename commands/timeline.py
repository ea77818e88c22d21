"""relkit timeline: what all ranks did, side by side on one clock."""

from __future__ import annotations

import click

from relkit.command_group import LazyGroup

# name -> (module:attribute, help line). Each part is imported only when it runs.
PARTS = {
    "record": (
        "relkit.commands.subcommands.timeline_record:record",
        "Record what a running job's ranks on this host do for some steps.",
    ),
    "merge": (
        "relkit.commands.subcommands.timeline_merge:merge",
        "Put the recordings of all nodes into one trace for Perfetto, on one clock.",
    ),
    "diff": (
        "relkit.commands.subcommands.timeline_diff:diff",
        "Say which operations became slower from one recording to another.",
    ),
}


@click.group(cls=LazyGroup, table=PARTS)
def timeline() -> None:
    """Show what all ranks of a job did, side by side on one clock.

    \b
    Examples:
      relkit timeline record my-run --steps 20 -o recorded
      relkit timeline merge recorded -o trace.pftrace
      relkit timeline diff yesterday recorded
    """
