"""relkit timeline merge: the recordings of all nodes as one trace, on one clock."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

from relkit.commands.shared.options import FiniteRange, NamedPath, finish


@click.command()
@click.argument(
    "paths", nargs=-1, required=True, type=NamedPath(path_type=Path), metavar="FOLDER..."
)
@click.option(
    "--output",
    "-o",
    "trace",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    help="The trace. ui.perfetto.dev opens it, on your own machine alone.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["perfetto", "chrome", "speedscope"]),
    default="perfetto",
    show_default=True,
    help="perfetto: protobuf; chrome: JSON of the Trace Event Format; speedscope: its JSON, "
    "without arrows and values.",
)
@click.option(
    "--clocks",
    type=click.Choice(["align", "as-they-are"]),
    default="align",
    show_default=True,
    help="align: put the hosts' clocks on one by what ranks did together, or refuse. as-they-are: "
    "take them as NTP left them, and say nothing of who waited for whom.",
)
@click.option(
    "--max-clock-error",
    "max_error_us",
    type=FiniteRange(min=1),
    default=1000.0,
    show_default=True,
    metavar="MICROSECONDS",
    help="A clock that is known less well is refused.",
)
@click.option("--force", "-f", is_flag=True, help="Replace an existing trace.")
@click.option("--jsonl", "fmt", flag_value="jsonl", help="One finding a line, as JSON.")
@click.option("--json", "fmt", flag_value="json", default=None, help="One JSON document.")
def merge(
    paths: tuple[Path, ...],
    trace: Path,
    form: str,
    clocks: str,
    max_error_us: float,
    force: bool,
    fmt: str | None,
) -> int:
    """Put the recordings of all nodes into one trace for Perfetto, on one clock.

    FOLDER holds files of `relkit timeline record`; also those that a hang left (.stacktrace), or
    xpu_timer's own (RRRRR-WWWWW.timeline). A track for each rank and thread, arrows between the
    ranks of one collective, bytes and bus bandwidth, steps, waits, and what launchers noted.

    \b
    Examples:
      relkit timeline merge recorded -o trace.pftrace
      relkit timeline merge node1/ node2/ -o trace.json --format chrome
      relkit timeline merge /root/timeline -o hang.pftrace
    """
    from relkit.commands.shared.progress import progress_bar
    from relkit.output import atomic_file, require_new
    from relkit.timeline.merge import Clocks
    from relkit.timeline.merge import merge as merge_sources
    from relkit.timeline.report import merge_report
    from relkit.timeline.sinks import SINKS
    from relkit.timeline.sources import find_sources

    started = time.time()
    require_new(trace, force=force)
    sources = find_sources(paths)
    with progress_bar("merging") as bar, atomic_file(trace) as stream:
        merged = merge_sources(
            sources, SINKS[form](stream), Clocks(clocks), max_error_us * 1e3, progress=bar
        )
    report = merge_report(
        merged, trace, argv=sys.argv, started=started, duration_s=time.time() - started
    )
    return finish(report, fmt, None, False)
