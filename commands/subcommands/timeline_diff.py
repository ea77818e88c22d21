"""relkit timeline diff: which operations became slower from one recording to another."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

from relkit.commands.shared.options import NamedPath, finish, report_options


@click.command()
@click.argument("before", type=NamedPath(path_type=Path))
@click.argument("after", type=NamedPath(path_type=Path))
@report_options
def diff(before: Path, after: Path, fmt: str | None, output: Path | None, force: bool) -> int:
    """Say which operations became slower from one recording to another.

    BEFORE and AFTER are folders of `relkit timeline record`, of one job at two times or of two jobs
    that should be alike. Compared are steps, products by their size, input waits and collections,
    and of each collective of each group the transfer: the time of whoever came last.
    What is too rare, or lies within its scatter, is not called slower. Exit code 1: something is.

    \b
    Examples:
      relkit timeline diff yesterday today
      relkit timeline diff yesterday today --json
    """
    from relkit.timeline.diff import compare
    from relkit.timeline.diff_report import diff_report
    from relkit.timeline.durations import gather_durations
    from relkit.timeline.sources import find_sources

    started = time.time()
    old, new = (gather_durations(find_sources([path]).ranks) for path in (before, after))
    report = diff_report(
        compare(old, new), old, new, argv=sys.argv, started=started,
        duration_s=time.time() - started,
    )  # fmt: skip
    return finish(report, fmt, output, force)
