"""relkit straggler report: who made a job slow, since when, why, and what it cost."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from relkit.commands.shared.options import finish
from relkit.log_lines import say_progress

if TYPE_CHECKING:
    from relkit.findings import Report
    from relkit.straggler.history_types import History


def _rank_of_file(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> dict[Path, int]:
    """RANK=FILE as file -> rank."""
    ranks: dict[Path, int] = {}
    for value in values:
        rank, _, name = value.partition("=")
        if not (rank.isascii() and rank.isdecimal() and len(rank) < 8 and name):
            raise click.BadParameter(f"{value!r} is no RANK=FILE, as in 3=trace-c.json")
        ranks[Path(name)] = int(rank)
    return ranks


@click.command()
@click.argument("paths", metavar="JOB|PATH...", nargs=-1)
@click.option(
    "--rank",
    "ranks",
    callback=_rank_of_file,
    multiple=True,
    metavar="RANK=FILE",
    help="Whose a trace is, where neither its content nor its name says it; may be repeated.",
)
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
def report(
    paths: tuple[str, ...],
    ranks: dict[Path, int],
    page: Path | None,
    force: bool,
    fmt: str | None,
) -> int:
    """Say who made a job slow, since when, why, and what it cost.

    Takes the id of a job that runs or ran on this host, its timeline folder, or a history.npz. Of
    jobs that did not run under relkit: a folder of traces, one for each rank, as torch.profiler
    writes them, or a table (CSV, parquet) with the columns rank, step and seconds.

    \b
    Examples:
      relkit straggler report my-run
      relkit straggler report /root/timeline -o report.html
      relkit straggler report straggler/history.npz --json
      relkit straggler report traces/
      relkit straggler report step_times.csv
    """
    from relkit.output import require_new, write_atomic

    started = time.time()
    if not paths and not ranks:
        raise click.UsageError("Missing argument 'JOB|PATH...'.")
    if page is not None:
        require_new(page, force=force)
    made, history = _of_files(paths, ranks, started) or _of_job(paths, started)
    if page is not None:
        from relkit.reports.straggler import straggler_page
        from relkit.straggler.present.metrics import metrics_of

        write_atomic(page, straggler_page.render(made, history, metrics_of(history)))
        say_progress(f"wrote {page}")
    return finish(made, fmt, None, force)


def _of_files(
    paths: tuple[str, ...], ranks: dict[Path, int], started: float
) -> tuple[Report, History] | None:
    """By traces or a table; None where these are neither."""
    from relkit.straggler.present.measured_report import measured_report
    from relkit.straggler.score.measured_job import judge
    from relkit.straggler.traces.sources import are_measured, read_steps
    from relkit.straggler.transport.locate import has_history

    # A trace that is named with its rank need not be named again.
    files = [*map(Path, paths), *ranks]
    if not ranks and (any(map(has_history, files)) or not are_measured(files)):
        return None
    measured = read_steps(files, ranks)
    judged = judge(measured)
    made = measured_report(
        measured, judged, argv=sys.argv, started=started, duration_s=time.time() - started
    )
    return made, judged.history


def _of_job(paths: tuple[str, ...], started: float) -> tuple[Report, History]:
    """By what relkit itself has seen of it."""
    from relkit.errors import UsageProblem
    from relkit.straggler.present.report import straggler_report
    from relkit.straggler.transport.locate import locate_history

    if len(paths) > 1:
        raise UsageProblem(
            "several jobs, or a path that does not exist",
            next_step="Name one job, or paths to the traces of one.",
        )
    history = locate_history(paths[0])
    made = straggler_report(
        history, argv=sys.argv, started=started, duration_s=time.time() - started
    )
    return made, history
