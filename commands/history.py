"""relkit history: what happened to the jobs of this host, and which nodes were named how often."""

from __future__ import annotations

import re
import sys
import time
from dataclasses import replace
from pathlib import Path

import click

_SPAN = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)\s*([smhdw])")
_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}


def _seconds(_ctx: click.Context, _param: click.Parameter, value: str) -> float:
    """A time such as 30d, in seconds."""
    match = _SPAN.fullmatch(value.strip().lower())
    if match is None:
        raise click.BadParameter(f"{value!r} is no time such as 30d, 12h or 90m")
    return float(match[1]) * _UNITS_S[match[2]]


def _named(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str:
    """What was asked for, "" for all: not what a variable that is not set has left."""
    if value is not None and not value.strip():
        raise click.BadParameter("it is empty. Was a variable not set?")
    return value or ""


@click.command()
@click.option("--node", callback=_named, metavar="NAME", help="Only what names this node.")
@click.option("--job", callback=_named, metavar="ID", help="Only what happened to this job.")
@click.option(
    "--since",
    "since_s",
    callback=_seconds,
    default="30d",
    show_default=True,
    metavar="TIME",
    help="How far to look back: 90m, 12h, 30d, 8w.",
)
@click.option(
    "--last",
    type=click.IntRange(0, 100_000),
    default=20,
    show_default=True,
    metavar="N",
    help="How many of the newest events to list; JSON and CSV have all.",
)
@click.option("--csv", "fmt", flag_value="csv", default=None, help="All events as CSV.")
@click.option(
    "--wandb-csv", "fmt", flag_value="wandb", help="A row an event with all counts so far, for W&B."
)
@click.option(
    "--tensorboard",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write event files of TensorBoard there, a folder a run.",
)
@click.option("--jsonl", "fmt", flag_value="jsonl", help="One finding a line, as JSON.")
@click.option("--json", "fmt", flag_value="json", help="One JSON document.")
def history(
    node: str, job: str, since_s: float, last: int, fmt: str | None, tensorboard: Path | None
) -> int:
    """Say which nodes were named how often, and what happened to the jobs of this host.

    Launchers and network checks of this user on this host write it: starts, faults, verdicts,
    saves, restarts, checks and ends. It survives a restart of the host. That a node was named often
    is evidence, and no verdict.

    \b
    Examples:
      relkit history
      relkit history --node node7 --since 12w
      relkit history --job my-job --json | jq '.events[].text'
      relkit history --since 52w --csv > history.csv
      relkit history --tensorboard curves && tensorboard --logdir curves
    """
    from relkit.commands.shared.options import finish
    from relkit.history.place import history_folder
    from relkit.history.report import (
        EVENTS_HEADER,
        NODES_HEADER,
        as_csv,
        event_rows,
        history_report,
        node_rows,
    )
    from relkit.history.series import as_wandb_csv
    from relkit.history.tensorboard_files import write_event_files
    from relkit.log_lines import say_progress, say_report
    from relkit.output import table

    started = time.time()
    report = history_report(
        history_folder(),
        started - since_s,
        node=node,
        job=job,
        argv=tuple(sys.argv),
        started=started,
    )
    report = replace(report, duration_s=time.time() - started)
    if tensorboard is not None:
        runs = write_event_files(tensorboard, report.facts["events"])
        say_progress(f"wrote {len(runs)} run{'' if len(runs) == 1 else 's'} below {tensorboard}")
    if fmt in ("csv", "wandb"):
        events = report.facts["events"]
        click.echo(as_csv(report.facts) if fmt == "csv" else as_wandb_csv(events), nl=False)
        return report.exit_code
    if fmt is not None:
        return finish(report, fmt, None, force=False)
    if report.facts["nodes"]:
        click.echo(table(node_rows(report.facts), NODES_HEADER) + "\n")
    if last and report.facts["events"]:
        click.echo(table(event_rows(report.facts, last), EVENTS_HEADER))
    say_report(report)
    return report.exit_code
