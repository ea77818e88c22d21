"""relkit why: from whatever a job left behind to one answer."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from relkit.commands.shared.options import finish, report_options
from relkit.commands.shared.progress import progress_bar


@click.command()
@click.argument(
    "paths",
    type=click.Path(path_type=Path, allow_dash=True),
    nargs=-1,
    required=True,
    metavar="PATH...",
)
@report_options
def why(paths: tuple[Path, ...], fmt: str | None, output: Path | None, force: bool) -> int:
    """Say why a job failed or hung, from whatever it left behind.

    PATH is a file, a folder, or - for standard input, in any mixture: logs of one rank or of all
    (as torchrun, srun -l, mpirun, Ray, kubectl, pdsh and docker write them), dumps of PyTorch's
    flight recorder, stacks, torchelastic's error files, sacct's and kubectl's words, kernel logs.
    A file's content says of what kind it is. No file is run, changed or sent anywhere.

    \b
    Exit codes: 1 the cause is found, 3 it is not.

    \b
    Examples:
      relkit why slurm-1234.out
      relkit why logs/ dumps/ dmesg-node7.txt --json
      kubectl logs -l job=train --prefix --tail=-1 | relkit why -
    """
    from relkit.why.explain import explain

    with progress_bar("reading") as progress:
        report = explain(paths, argv=tuple(sys.argv), progress=progress)
    return finish(report, fmt, output, force)
