"""relkit stacks dump: capture the stacks of processes or of a job's ranks on this host."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

from relkit.commands.shared.options import FiniteRange
from relkit.errors import UsageProblem
from relkit.output import emit


@click.command()
@click.option("--pid", "pids", type=click.IntRange(min=1), multiple=True, help="A process; repeat.")
@click.option(
    "--job",
    "job_id",
    metavar="ID",
    help="The ranks of this job on this host. ID is torchrun's --rdzv-id, or the number of Slurm, "
    "PBS or LSF.  [default: the ranks of all jobs on this host]",
)
@click.option(
    "--output",
    "-o",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    envvar=["RELKIT_STACKS_DUMP_OUTPUT", "XPU_TIMER_TIMELINE_PATH"],
    default=Path(),
    help="Folder for the .stacktrace files; made where missing.  [default: this folder, or "
    "$XPU_TIMER_TIMELINE_PATH]",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=FiniteRange(min=0.1),
    default=10.0,
    show_default=True,
    help="Limit for the whole capture, in seconds.",
)
@click.option("--print", "show", is_flag=True, help="Print the stacks, too.")
@click.option("--jsonl", "fmt", flag_value="jsonl", help="One finding a line, as JSON.")
@click.option("--json", "fmt", flag_value="json", default=None, help="One JSON document.")
def dump(
    pids: tuple[int, ...],
    job_id: str | None,
    folder: Path,
    timeout_s: float,
    show: bool,
    fmt: str | None,
) -> int:
    """Capture Python and native stacks into RRRRR-WWWWW.stacktrace files.

    The ranks of torchrun, mpirun and srun are found by their environment, those under relkit by its
    recorders. Of several jobs each gets a folder of its own. What a rank has started, such as the
    workers of a data loader, is left out. `relkit hang analyze FOLDER` then says who is at fault.

    Python frames are read without stopping the process. Native frames come from the hook where
    it is loaded; elsewhere a collector stops the process for up to a second, and never one that
    is stopped already or in uninterruptible sleep.

    \b
    Examples:
      relkit stacks dump -o stacks
      relkit stacks dump --job my-run -o /root/timeline
      relkit stacks dump --pid 4711 --print
    """
    if pids and job_id is not None:
        raise UsageProblem("give either --pid (once or more) or --job")
    if show and fmt:
        raise UsageProblem("--print is for people, --json and --jsonl for programs: choose one")
    from relkit.stacks.dump.capture import capture_ranks
    from relkit.stacks.dump.find_jobs import FoundJobs, JobTargets, find_job, find_jobs
    from relkit.stacks.dump.report import dump_report, stacks_text
    from relkit.stacks.dump.targets import targets_of_pids
    from relkit.stacks.dump.write import require_free, write_dumps

    started = time.time()
    search_s = timeout_s / 2
    if pids:
        search = FoundJobs((JobTargets("", targets_of_pids(pids), ""),))
    else:
        search = find_jobs(search_s) if job_id is None else find_job(job_id, search_s)
    folders = search.folders(folder)
    for job, place in zip(search.jobs, folders, strict=True):
        require_free(place, job.targets)
    targets = [target for job in search.jobs for target in job.targets]
    with click.progressbar(
        length=len(targets), label="capturing", file=sys.stderr, hidden=not sys.stderr.isatty()
    ) as bar:
        dumps = capture_ranks(
            targets,
            deadline_s=timeout_s - (time.time() - started),
            progress=lambda done, _: bar.update(done - bar.pos),
        )
    paths: list[Path] = []
    for job, place in zip(search.jobs, folders, strict=True):
        own = dumps[len(paths) : len(paths) + len(job.targets)]
        # Again: a loop in a shell may run several of us beside each other.
        require_free(place, own)
        paths += write_dumps(place, own)
    if show:
        click.echo(stacks_text(dumps), nl=False)
    report = dump_report(
        dumps,
        paths,
        search,
        folders,
        argv=sys.argv,
        started=started,
        duration_s=time.time() - started,
    )
    emit(report, fmt or "table")
    return report.exit_code
