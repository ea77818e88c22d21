"""relkit page: all that is kept of a job, as one page."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from relkit.commands.shared.options import NamedPath
from relkit.commands.shared.progress import progress_bar
from relkit.errors import EXIT_OK
from relkit.log_lines import say_progress


@click.command()
@click.argument("named", metavar="JOB_OR_FOLDER", type=NamedPath())
@click.option(
    "--output",
    "-o",
    "target",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    metavar="PAGE",
    help="Write the page there.",
)
@click.option("--force", "-f", is_flag=True, help="Replace an existing -o file.")
def page(named: str, target: Path, force: bool) -> int:
    """Make one page of a job: what happened, hang, stragglers, network, checkpoints, restarts.

    JOB_OR_FOLDER is a job of this host (see relkit status), running or ended, or the timeline
    folder that a job has left, also of another host. The page is one file that needs nothing from
    elsewhere, in light and dark.

    \b
    Examples:
      relkit page my-job -o my-job.html
      relkit page /root/timeline -o last-night.html
    """
    from relkit.job_page.parts import parts_of
    from relkit.output import require_new, write_atomic
    from relkit.reports.jobs import job_page

    require_new(target, force=force)
    with progress_bar("reading") as progress:
        parts = parts_of(named, argv=tuple(sys.argv))
        progress(description="drawing")
        write_atomic(target, job_page.render(parts).encode(errors="replace"))
    say_progress(f"wrote {target}")
    return EXIT_OK
