"""relkit straggler tune: other settings for a job that runs."""

from __future__ import annotations

import click

from relkit.commands.shared.options import FiniteRange
from relkit.errors import UsageProblem
from relkit.log_lines import say_progress
from relkit.straggler.transport import control
from relkit.straggler.transport.control_settings import Mode


@click.command()
@click.argument("job")
@click.option(
    "--mode",
    type=click.Choice([mode.value for mode in Mode]),
    help="off: collect nothing; warn: report who is slow; exclude: also have its node leave.",
)
@click.option(
    "--min-slowdown",
    type=FiniteRange(0.01, 10.0),
    metavar="SHARE",
    help="The smallest slowdown to report: 0.04 = 4 % slower than its peers.",
)
def tune(job: str, mode: str | None, min_slowdown: float | None) -> int:
    """Switch a running job's straggler detection off or on, or change its limits.

    Works on the host of the job's first node, without a restart; the launcher says when it has
    taken the settings.

    \b
    Examples:
      relkit straggler tune my-run --mode off
      relkit straggler tune my-run --mode warn --min-slowdown 0.1
    """
    from relkit.straggler.transport.locate import job_folders

    if mode is None and min_slowdown is None:
        raise UsageProblem("nothing to change", next_step="Add --mode or --min-slowdown.")
    folder = next(iter(job_folders(job)), None)
    if folder is None:
        raise UsageProblem(
            f"no job {job!r} runs on this host",
            next_step="The launcher prints the job's id at its start; run this on its first node.",
        )
    changes: dict[str, str | float] = {}
    if mode is not None:
        changes["mode"] = mode
    if min_slowdown is not None:
        changes["min_slowdown"] = min_slowdown
    control.write(folder, changes)
    say_progress(f"asked the launcher of {job} for {changes}")
    return 0
