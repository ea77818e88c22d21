"""relkit top: the jobs of this host on one live screen."""

from __future__ import annotations

import sys
import time

import click

from relkit.commands.shared.options import FiniteRange
from relkit.errors import EXIT_OK


@click.command()
@click.argument("job", required=False)
@click.option(
    "--interval",
    "interval_s",
    type=FiniteRange(0.5, 3600),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="How often to look again.",
)
def top(job: str | None, interval_s: float) -> int:
    """Watch the jobs of this host on one live screen: health, step, rate, who is slow, saves.

    The same as relkit status, looked at again and again until Ctrl-C, or until JOB has ended. In a
    pipe it prints what status prints, once. Nothing is asked of a rank's process.

    \b
    Examples:
      relkit top
      relkit top my-job
      relkit top | head
    """
    from relkit.commands.status import show
    from relkit.live_job.report import status_report

    argv = tuple(sys.argv)
    report = status_report(job, argv=argv, started=time.time())
    if not sys.stdout.isatty():
        show(report)
        return report.exit_code
    # Only here: a pipe needs no screen.
    from relkit.commands.shared.job_screen import JobScreen

    try:
        with JobScreen() as screen:
            while True:
                screen.show(report)
                if job is not None and report.facts["state"] not in ("running", "recovering"):
                    break
                time.sleep(interval_s)
                report = status_report(job, argv=argv, started=time.time())
    except KeyboardInterrupt:
        return EXIT_OK
    show(report)
    return report.exit_code
