"""relkit run: any launcher's command under the hook and the monitor."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from relkit.commands.launch_parts import hang_options as shared
from relkit.launch.job.on_hang import OnHang
from relkit.text.job_id import safe_job_id


@click.command(context_settings={"allow_interspersed_args": False})
@shared.hang_timeout("RUN")
@shared.timeline_path("RUN")
@shared.on_hang((OnHang.REPORT, OnHang.ABORT), OnHang.REPORT)
@click.option(
    "--job-id",
    metavar="ID",
    help="Groups the `relkit run` of one job. [default: the launcher's own id]",
)
@click.option("--no-hook", is_flag=True, help="Only run the command: no hang detection.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND...")
def run(
    hang_timeout: float,
    timeline_path: Path | None,
    on_hang: str,
    job_id: str | None,
    no_hook: bool,
    command: tuple[str, ...],
) -> int:
    """Put any other launcher's command under the same hook and monitor.

    The command runs in the foreground, gets all signals, and its exit code is passed on. On
    one node all ranks are watched together, however many `relkit run` they were started with. In a
    job of several nodes (Slurm, mpirun, torchrun, Kubernetes) each node has a folder of its own,
    node-NODE, below the timeline folder; `relkit report` on that judges the ranks of all nodes.

    \b
    Examples:
      relkit run -- python train.py
      relkit run --hang-timeout 120 -- mpirun -n 8 python train.py
      srun relkit run -- python train.py
    """
    from relkit.commands.shared.incident import choose_timeline, monitor_into
    from relkit.launch import run_command
    from relkit.launch.job.folder import JobFolder
    from relkit.launch.job.node_name import node_name
    from relkit.launch.job.settings import MonitorSettings
    from relkit.launch.peers.job_identity import job_identity, this_machine
    from relkit.log_lines import name_job
    from relkit.log_lines import say as log
    from relkit.stacks.folder import node_folder

    action = OnHang(on_hang)
    job = job_identity(os.environ, node_name({}), this_machine())
    own = f"run-{node_name({}).partition('.')[0]}-{os.getpid()}"
    name = safe_job_id(job_id or job.job_id or own)
    name_job(name, node_name({}))
    whole = folder = choose_timeline(timeline_path)
    if job.several_nodes:
        folder = choose_timeline(node_folder(whole, job.node))
    monitor, page = monitor_into(
        folder,
        MonitorSettings(hang_timeout, action, tuple(sys.argv)),
        of_all_nodes=whole if folder.parent == whole else None,
    )
    recorders = JobFolder(not no_hook, log, command[0])
    node = job.node if job.several_nodes else ""
    job_dir, extra = recorders.prepare(name, os.cpu_count() or 1, node=node)

    def said(line: str) -> None:
        log(line)
        page.note(line)

    try:
        return run_command.run_command(
            command,
            {**os.environ, **extra},
            job_id=name,
            job_dir=job_dir,
            monitor=monitor,
            on_hang=action,
            log=said,
            several_nodes=job.several_nodes,
        )
    finally:
        recorders.remove()
