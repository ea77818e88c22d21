"""relkit hang: who made a job hang, from what was saved of it."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from relkit.command_group import CommandGroup
from relkit.commands.shared.options import NamedPath, finish, report_options
from relkit.commands.shared.progress import progress_bar
from relkit.commands.subcommands.hang_collect import collect


@click.group(cls=CommandGroup)
def hang() -> None:
    """Name the rank that made a job hang, from files that the job left.

    \b
    Example:
      relkit hang analyze /tmp/nccl_traces
    """


hang.add_command(collect)


@hang.command()
@click.argument("paths", type=NamedPath(path_type=Path), nargs=-1, required=True, metavar="PATH...")
@report_options
def analyze(paths: tuple[Path, ...], fmt: str | None, output: Path | None, force: bool) -> int:
    """Judge the dumps of PyTorch's flight recorder, stacks, and logs of NCCL's watchdog.

    PATH is a folder, or files whose names end with their rank. Pickles and JSON are read, of NCCL,
    RCCL, XCCL, gloo and others, whoever launched the job; nothing in them is run. Of two files of
    one rank the newer one counts.

    Beside dumps, or without any, these are used: relkit's .stacktrace files, what `py-spy dump`
    (rank3.txt, rank3.json) or faulthandler printed, and logs of the job with lines of NCCL's
    watchdog or tracebacks of ranks. A file that cannot be used is named, and accuses nobody.

    \b
    Exit codes: 1 a rank is at fault, 3 no rank stands out.

    \b
    Examples:
      relkit hang analyze /tmp/nccl_traces
      relkit hang analyze run7/nccl_trace_rank_* --json
      relkit hang analyze /tmp/nccl_traces slurm-1234.out
    """
    from relkit.flight_recorder.analyze import analyze as judge
    from relkit.flight_recorder.analyze import find_sources

    with progress_bar("reading dumps") as progress:
        report = judge(*find_sources(paths), argv=tuple(sys.argv), progress=progress)
    return finish(report, fmt, output, force)
