"""relkit status: where jobs stand and how they do, and what each recovery took."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

from relkit.commands.shared.options import finish, report_options
from relkit.findings import Report
from relkit.log_lines import say_report
from relkit.output import table


@click.command()
@click.argument("job", required=False)
@report_options
def status(job: str | None, fmt: str | None, output: Path | None, force: bool) -> int:
    """Say where a job stands, what each restart took, and how much of the time was productive.

    JOB is the job's id (--rdzv-id), which the launcher prints. It may run or have ended. Without
    JOB, the jobs of this user on this host are listed: health (ok, starting, suspect, hung,
    restarting, or how it ended), step, rate, who is slow, last checkpoints. What launchers publish
    is read; nothing is asked of a rank. Exit code 1: the job has failed or was ended; 3: its
    launcher was killed.

    \b
    Examples:
      relkit status
      relkit status my-job
      relkit status my-job --json | jq '.ettr, .restarts, .recoveries[].phases_s'
    """
    from relkit.live_job.report import status_report

    report = status_report(job, argv=tuple(sys.argv), started=time.time())
    if fmt is not None or output is not None:
        return finish(report, fmt or "json", output, force)
    show(report)
    return report.exit_code


def show(report: Report) -> None:
    """As lines: what runs, then what each recovery took, then the findings."""
    from relkit.accounting.report import HEADER, rows_of
    from relkit.live_job.gpus import Gpu, gpu_words
    from relkit.live_job.report import HEADER as LIVE_HEADER
    from relkit.live_job.report import cells_of

    facts = report.facts
    if "jobs" in facts:
        click.echo(table([cells_of(row) for row in facts["jobs"]], LIVE_HEADER))
    else:
        if facts["state"] in ("running", "recovering"):
            click.echo(table([cells_of(facts["live"])], LIVE_HEADER) + "\n")
        click.echo(table(rows_of(facts), HEADER))
    for gpu in facts["gpus"]:
        click.echo(gpu_words(Gpu(**gpu)))
    if others := facts.get("other_users"):
        click.echo(f"jobs of other users are not looked at: user {', '.join(map(str, others))}")
    say_report(report)
