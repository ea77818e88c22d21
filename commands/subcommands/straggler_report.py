"""relkit straggler report: who made a job slow, since when, why, and what it cost."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

from relkit.commands.shared.options import finish
from relkit.log_lines import say_progress


@click.command()
@click.argument("job", metavar="JOB|FOLDER|FILE")
@click.option(
    "--output",
    "-o",
    "page",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="PAGE",
    help="Write an HTML page there: heatmap, lateness, parts of a step, links.",
)
@click.option("--force", "-f", is_flag=True, help="Replace an existing page.")
@click.option("--jsonl", "fmt", flag_value="jsonl", help="One finding a line, as JSON.")
@click.option("--json", "fmt", flag_value="json", default=None, help="One JSON document.")
def report(job: str, page: Path | None, force: bool, fmt: str | None) -> int:
    """Say who made a job slow, since when, why, and what it cost.

    Takes the id of a job that runs or ran on this host, its timeline folder, or a history.npz.

    \b
    Examples:
      relkit straggler report my-run
      relkit straggler report /root/timeline -o report.html
      relkit straggler report straggler/history.npz --json
    """
    from relkit.output import require_new, write_atomic
    from relkit.straggler.present.report import straggler_report
    from relkit.straggler.transport.locate import locate_history

    started = time.time()
    if page is not None:
        require_new(page, force=force)
    history = locate_history(job)
    made = straggler_report(
        history, argv=sys.argv, started=started, duration_s=time.time() - started
    )
    if page is not None:
        from relkit.reports.straggler import straggler_page
        from relkit.straggler.present.metrics import metrics_of

        write_atomic(page, straggler_page.render(made, history, metrics_of(history)))
        say_progress(f"wrote {page}")
    return finish(made, fmt, None, force)
