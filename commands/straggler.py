"""relkit straggler: find the slow rank, device, host or link, before a job and while it runs."""

from __future__ import annotations

import importlib

import click

# name -> (module:attribute, help line). Each part is imported only when it runs.
PARTS = {
    "preflight": (
        "relkit.commands._straggler_preflight:preflight",
        "Find the device, host or link that would make a job slow, before it starts.",
    ),
    "watch": (
        "relkit.commands._straggler_watch:watch",
        "Show who is slow in a running job, and why, while it happens.",
    ),
    "report": (
        "relkit.commands._straggler_report:report",
        "Say who made a job slow, since when, why, and what it cost.",
    ),
    "tune": (
        "relkit.commands._straggler_tune:tune",
        "Switch a running job's straggler detection off, on, or to other limits.",
    ),
}


class _LazyParts(click.Group):
    """The parts in the order in which they are used, loaded by name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(PARTS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in PARTS:
            return None
        module_name, attribute = PARTS[cmd_name][0].split(":")
        command = getattr(importlib.import_module(module_name), attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, PARTS[name][1]) for name in self.list_commands(ctx)])


@click.group(cls=_LazyParts)
def straggler() -> None:
    """Find the slow rank, device, host or link, before a job and while it runs.

    \b
    Examples:
      relkit straggler preflight --nodes hosts.txt
      relkit straggler watch my-run
      relkit straggler report my-run -o report.html
    """
