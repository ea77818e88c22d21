"""relkit straggler watch: who is slow in a running job, and why, while it happens."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import click

from relkit.commands.shared.options import FiniteRange
from relkit.errors import EXIT_UNKNOWN, NoSuchProcess, UsageProblem
from relkit.log_lines import say_error, say_progress

if TYPE_CHECKING:
    from relkit.commands.subcommands.straggler_screen import Sink
    from relkit.straggler.transport.tail import HistoryTail

# Shorter than any interval, so that the end of a job and Ctrl-C are not waited for.
_POLL_S = 0.1


@click.command()
@click.argument("job", required=False)
@click.option(
    "--interval",
    "interval_s",
    type=FiniteRange(0.1, 3600),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="How often to show something new.",
)
@click.option("--once", is_flag=True, help="Show what is known now, and exit.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line, for each update.")
def watch(job: str | None, interval_s: float, once: bool, as_json: bool) -> int:
    """Show who is slow in a running job, and why, while it happens.

    JOB is the id that the launcher prints; it may be left out where one job runs on this host.
    A table refreshed in place on a terminal, plain lines in a pipe. Runs on the job's first node;
    ends with the job, or with Ctrl-C. The exit code is that of the last state: 1 somebody is slow,
    0 nobody is, 3 could not tell.

    \b
    Examples:
      relkit straggler watch
      relkit straggler watch my-run
      relkit straggler watch my-run --once
      relkit straggler watch my-run --json | jq -c .stragglers
    """
    from relkit.commands.subcommands.straggler_screen import JsonLines, Lines, Screen
    from relkit.straggler.present.report import straggler_report
    from relkit.straggler.transport.tail import HistoryTail

    if job is None:
        job = _only_job()
    tail = HistoryTail(job)
    sink: Sink
    if as_json:
        sink = JsonLines()
    elif sys.stdout.isatty() and not once:
        sink = Screen()
    else:
        sink = Lines(whole=once)
    with sink:
        _tail(tail, sink, interval_s, once)
    if tail.history is None:
        say_error(f"job {job}: no step was seen, relkit could not tell")
        return EXIT_UNKNOWN
    if not once:
        say_progress(f"job {job} has ended")
    return straggler_report(tail.history).exit_code


def _only_job() -> str:
    from relkit.straggler.transport.locate import jobs_here

    jobs = jobs_here()
    if len(jobs) == 1:
        return jobs[0]
    if jobs:
        raise UsageProblem("several jobs run here", next_step=f"Name one: {', '.join(jobs)}.")
    raise NoSuchProcess(
        "no job on this host has steps to show",
        next_step="Start one with `relkit launch`; run this on its first node.",
    )


def _tail(tail: HistoryTail, sink: Sink, interval_s: float, once: bool) -> None:
    shown_at_s = float("-inf")
    waiting = False
    news = False
    while True:
        news = tail.poll() or news
        now_s = time.monotonic()
        due = now_s >= shown_at_s + interval_s
        if news and tail.history is not None and (due or tail.over):
            sink.show(tail.history)
            shown_at_s, news = now_s, False
        if tail.over or once:
            return
        if tail.history is None and not waiting:
            waiting = True
            say_progress("waiting for the first steps")
        time.sleep(min(_POLL_S, interval_s))
