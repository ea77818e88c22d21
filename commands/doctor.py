"""relkit doctor: what works on this host."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

from relkit.commands.shared.options import FiniteRange, finish, report_options
from relkit.findings import Report


@click.command()
@click.option(
    "--timeline-path",
    type=click.Path(path_type=Path, file_okay=False),
    envvar=["RELKIT_DOCTOR_TIMELINE_PATH", "XPU_TIMER_TIMELINE_PATH"],
    help="The folder that a hang's evidence would go to.  [default: as of `relkit launch`: "
    "/root/timeline, or ~/timeline where that is not writable]",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=FiniteRange(min=1),
    default=60.0,
    show_default=True,
    help="Limit for each single trial, in seconds.",
)
@report_options
def doctor(
    timeline_path: Path | None,
    timeout_s: float,
    fmt: str | None,
    output: Path | None,
    force: bool,
) -> int:
    """Check what works on this host, and how to fix what does not.

    Loads the hook into a child, reads a child's stack with py-spy, queries torch's backends,
    and checks ptrace rights, /dev/shm, core limits and the timeline folder.

    \b
    Examples:
      relkit doctor
      relkit doctor --json | jq .findings
    """
    from rich.console import Console

    from relkit.doctor.collect import collect
    from relkit.doctor.diagnose import diagnose

    started = time.time()
    with Console(stderr=True).status("checking this host") as status:
        facts = collect(
            timeline_path,
            timeout_s=timeout_s,
            step=lambda name: status.update(f"trying {name}"),
        )
    report = Report(
        "doctor",
        diagnose(facts),
        started=started,
        duration_s=time.time() - started,
        argv=tuple(sys.argv),
    )
    return finish(report, fmt, output, force)
