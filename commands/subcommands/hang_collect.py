"""relkit hang collect: the evidence of a hang that lies on many nodes, in one folder."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

from relkit.commands.shared.fleet_options import fleet_options
from relkit.output import emit


@click.command()
@fleet_options
@click.option(
    "--timeline-path",
    "timeline",
    metavar="FOLDER",
    default="",
    help="The timeline folder on the nodes, as given to the launch with --timeline-path.  "
    "[default: /root/timeline, or ~/timeline]",
)
@click.option(
    "--output",
    "-o",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    required=True,
    help="A new folder for the evidence; made where missing.",
)
@click.option("--jsonl", "fmt", flag_value="jsonl", help="One finding a line, as JSON.")
@click.option("--json", "fmt", flag_value="json", default=None, help="One JSON document.")
def collect(timeline: str, folder: Path, fmt: str | None, **fleet: str | int | float) -> int:
    """Bring the evidence of a hang from all nodes into one folder.

    Reaches the nodes as relkit netcheck does. report.json and the .stacktrace files of each node's
    timeline folder come into FOLDER/node-NODE; what several nodes share is fetched once. Then
    `relkit report FOLDER` and `relkit stacks merge FOLDER` judge all ranks together. Nothing on the
    nodes is changed, and what an earlier hang left there is not fetched.

    \b
    Exit codes: 0 all nodes gave what they have, 3 something is missing.

    \b
    Examples:
      relkit hang collect --nodes hosts.txt -o hang7
      relkit hang collect --nodes 'node[001-064]' --timeline-path /scratch/timeline -o hang7
      relkit hang collect --via kubectl --nodes app=trainer -o hang7
    """
    from rich.console import Console
    from rich.progress import DownloadColumn, Progress

    from relkit.commands.shared.fleet_nodes import channel_of, nodes_of
    from relkit.hang.collect.gather import gather, new_folder
    from relkit.hang.collect.gathered_report import gathered_report, lift_report

    started, step_s = time.time(), float(fleet["timeout_s"])
    nodes = nodes_of(fleet)
    channel = channel_of(fleet, step_s)
    new_folder(folder)
    console = Console(stderr=True)
    with Progress(
        *Progress.get_default_columns(),
        DownloadColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as progress:
        task = progress.add_task("collecting", total=None)
        gathered = gather(
            channel,
            nodes,
            folder,
            timeline=timeline,
            step_s=step_s,
            progress=lambda done, whole: progress.update(task, completed=done, total=whole),
        )
    gathered = lift_report(gathered, folder)
    report = gathered_report(
        gathered,
        folder,
        nodes=[node.name for node in nodes],
        argv=sys.argv,
        started=started,
        duration_s=time.time() - started,
    )
    emit(report, fmt or "table")
    return report.exit_code
