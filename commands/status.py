"""relkit status: where a job stands, and what each of its recoveries took."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path

import click

from relkit.commands.shared.options import finish, report_options
from relkit.log_lines import say_report
from relkit.output import table


@click.command()
@click.argument("job", required=False)
@report_options
def status(job: str | None, fmt: str | None, output: Path | None, force: bool) -> int:
    """Say where a job stands, what each restart took, and how much of the time was productive.

    JOB is the job's id (--rdzv-id), which the launcher prints. It may run or have ended. Without
    JOB, the jobs of this user on this host are listed. Exit code 1: the job has failed or was
    ended; 3: its launcher was killed.

    \b
    Examples:
      relkit status
      relkit status my-job
      relkit status my-job --json | jq '.ettr, .restarts, .recoveries[].phases_s'
    """
    from relkit.accounting.report import (
        HEADER,
        JOBS_HEADER,
        job_report,
        job_rows,
        jobs_report,
        rows_of,
    )

    started, argv = time.time(), tuple(sys.argv)
    if job is None:
        report = jobs_report(argv=argv, started=started)
    else:
        report = job_report(job, argv=argv, started=started)
    if fmt is not None or output is not None:
        report = replace(report, duration_s=time.time() - started)
        return finish(report, fmt or "json", output, force)
    if job is None:
        click.echo(table(job_rows(report.facts), JOBS_HEADER))
    else:
        click.echo(table(rows_of(report.facts), HEADER))
    say_report(report)
    return report.exit_code
