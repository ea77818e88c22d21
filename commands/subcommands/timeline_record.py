"""relkit timeline record: what a running job's ranks on this host do for some steps."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

from relkit.commands.shared.options import FiniteRange, finish
from relkit.errors import UsageProblem


@click.command()
@click.argument("job")
@click.option(
    "--steps",
    type=click.IntRange(min=1, max=100_000),
    metavar="N",
    help="Until each rank has done so many whole steps.  [default: 10]",
)
@click.option("--now", is_flag=True, help="What the rings of the ranks hold already, and no more.")
@click.option(
    "--output",
    "-o",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    help="Folder for the files, one a rank; made where missing. Nodes may share it.",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=FiniteRange(min=0.1),
    default=300.0,
    show_default=True,
    metavar="SECONDS",
    help="Stop then, however many steps were done.",
)
@click.option("--force", "-f", is_flag=True, help="Replace what is recorded in the folder already.")
@click.option("--jsonl", "fmt", flag_value="jsonl", help="One finding a line, as JSON.")
@click.option("--json", "fmt", flag_value="json", default=None, help="One JSON document.")
def record(
    job: str,
    steps: int | None,
    now: bool,
    folder: Path,
    timeout_s: float,
    force: bool,
    fmt: str | None,
) -> int:
    """Record what a running job's ranks on this host do for some steps.

    JOB is the id that the launcher prints. Run it on every node; the ranks notice nothing, as only
    the shared memory of their recorders is read. Ctrl-C stops it and keeps what is there. Then
    `relkit timeline merge` makes one trace of all files.

    \b
    Examples:
      relkit timeline record my-run --steps 20 -o recorded
      relkit timeline record my-run --now -o recorded
    """
    if now and steps is not None:
        raise UsageProblem("--now takes what is there, --steps waits for more: choose one")
    from relkit.commands.shared.progress import progress_bar
    from relkit.timeline.record import prepare_folder
    from relkit.timeline.record import record as record_job
    from relkit.timeline.report import record_report

    started = time.time()
    prepare_folder(folder, is_replaced=force)
    wanted = None if now else steps or 10
    with progress_bar("steps recorded") as bar:
        recording = record_job(job, folder, wanted, timeout_s, progress=bar)
    report = record_report(
        recording, wanted, folder, argv=sys.argv, started=started, duration_s=time.time() - started
    )
    return finish(report, fmt, None, False)
