"""relkit straggler: find the slow rank, device, host or link, before a job and while it runs."""

from __future__ import annotations

import click

from relkit.command_group import LazyGroup

# name -> (module:attribute, help line). Each part is imported only when it runs.
PARTS = {
    "preflight": (
        "relkit.commands.subcommands.straggler_preflight:preflight",
        "Find the device, host or link that would make a job slow, before it starts.",
    ),
    "watch": (
        "relkit.commands.subcommands.straggler_watch:watch",
        "Show who is slow in a running job, and why, while it happens.",
    ),
    "report": (
        "relkit.commands.subcommands.straggler_report:report",
        "Say who made a job slow, since when, why, and what it cost.",
    ),
    "tune": (
        "relkit.commands.subcommands.straggler_tune:tune",
        "Switch a running job's straggler detection off or on, or change its limits.",
    ),
}


@click.group(cls=LazyGroup, table=PARTS)
def straggler() -> None:
    """Find the slow rank, device, host or link, before a job and while it runs.

    \b
    Examples:
      relkit straggler preflight --nodes hosts.txt
      relkit straggler watch my-run
      relkit straggler report my-run -o report.html
    """
