"""relkit why: from whatever a job left behind to one answer."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from relkit.commands.shared.options import NamedPath, finish, report_options
from relkit.commands.shared.progress import progress_bar


@click.command()
@click.argument(
    "paths",
    type=NamedPath(path_type=Path, allow_dash=True),
    nargs=-1,
    required=True,
    metavar="PATH...",
)
@report_options
def why(paths: tuple[Path, ...], fmt: str | None, output: Path | None, force: bool) -> int:
    """Say why a job failed or hung, from whatever it left behind.

    PATH is a file, a folder, an archive, or - for standard input, in any mixture: logs of one rank
    or of all (as torchrun, srun -l, mpirun, Ray, kubectl, pdsh and docker write them), dumps of
    PyTorch's flight recorder, stacks (py-spy, gdb, pystack, faulthandler), torchelastic's error
    files, lists of core files, sacct's, scontrol's and kubectl's words, kernel logs; packed with
    gzip, bzip2, xz or zstd, or in a tar or zip archive. A file's content says of what kind it is.
    No file is run, changed, unpacked to a disk or sent anywhere.

    Files of several jobs are told apart, and the newest that failed is the answer. Instead of
    PATH, the name of a job of this host (see relkit status) asks what its launcher knows.

    \b
    Exit codes: 1 the cause is found, 3 it is not.

    \b
    Examples:
      relkit why slurm-1234.out
      relkit why logs/ dumps/ dmesg-node7.txt --json
      relkit why logs-of-last-night.tar.gz
      kubectl logs -l job=train --prefix --tail=-1 | relkit why -
      relkit why my-job
    """
    from relkit.why.explain import explain
    from relkit.why.named_job import explain_job, is_job_name, is_known, no_such_job

    named = [str(path) for path in paths if is_job_name(str(path))]
    if len(paths) == 1 and named and is_known(named[0]):
        return finish(explain_job(named[0], argv=tuple(sys.argv)), fmt, output, force)
    if named:
        raise no_such_job(named[0])

    with progress_bar("reading") as progress:
        report = explain(paths, argv=tuple(sys.argv), progress=progress)
    return finish(report, fmt, output, force)
