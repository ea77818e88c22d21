"""relkit demo: a real job hangs, and relkit names the rank at fault."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import click

from relkit import demo as demonstration
from relkit.commands.launch_parts import hang_options as shared
from relkit.commands.shared.options import finish, report_options, seconds_option
from relkit.faults import FAULTS
from relkit.findings import Evidence, Finding, Report, Status
from relkit.log_lines import as_variables, say_progress


def _title(demo: demonstration.Demo, result: demonstration.DemoResult) -> str:
    if result.right and demo.guilty is None:
        return "the healthy run succeeded, without an alarm"
    if result.right:
        return f"the verdict names rank {demo.guilty}, where the fault was injected"
    if result.culprits is not None:
        said = f"the verdict names {f'rank {result.culprits[0]}' if result.culprits else 'nobody'}"
    elif result.exit_code is not None:
        said = f"its exit code is {result.exit_code}"
    else:
        said = "it was ended after its time"
    if demo.guilty is None:
        return f"the healthy run went wrong: {said}"
    if result.culprits is None:
        # Whether the job has come as far as the fault is not known.
        return f"the job has ended without a verdict: {said}"
    return f"the fault was injected into rank {demo.guilty}, {said}"


def _report(demo: demonstration.Demo, result: demonstration.DemoResult) -> Report:
    finding = Finding(
        id="RK-DEMO-001",
        status=Status.OK if result.right else Status.FAIL,
        title=_title(demo, result),
        ranks="" if demo.guilty is None else str(demo.guilty),
        evidence=(Evidence("whole run", round(result.duration_s, 1), "s"),),
        advice="" if result.right else "Run `relkit doctor`, and look at the report above.",
    )
    return Report(
        "demo",
        (finding,),
        facts={
            "fault": demo.fault,
            "injected": demo.guilty,
            "culprits": list(result.culprits or ()),
            "exit_code": result.exit_code,
            "files": [str(path) for path in result.files],
        },
        duration_s=result.duration_s,
        argv=tuple(sys.argv),
    )


@click.command()
@click.option(
    "--fault",
    type=click.Choice([*FAULTS, demonstration.NO_FAULT]),
    default="hang",
    show_default=True,
    help="What to break; `none` shows that a healthy job gives no alarm.",
)
@click.option("--nproc", type=click.IntRange(1, 64), default=4, show_default=True, help="Ranks.")
@click.option("--rank", type=click.IntRange(0), help="Rank to break. [default: one in the middle]")
@seconds_option(
    "--hang-timeout", shared.MIN_TIMEOUT_S, 10.0, "How long without progress counts as a hang."
)
@shared.timeline_path("DEMO")
@report_options
def demo(
    fault: str,
    nproc: int,
    rank: int | None,
    hang_timeout: float,
    timeline_path: Path | None,
    fmt: str | None,
    output: Path | None,
    force: bool,
) -> int:
    """Watch a real job hang, and see relkit name the rank at fault.

    Trains a tiny GPT on this machine's CPU, breaks one rank on purpose, and shows what relkit
    makes of it. Exit code 0 when the verdict names that rank, 1 when it does not.

    \b
    Examples:
      relkit demo
      relkit demo --fault deadlock --nproc 8 --hang-timeout 5
    """
    from relkit.commands.shared.incident import choose_timeline

    wanted = demonstration.Demo(
        fault=fault,
        processes=nproc,
        hang_timeout_s=hang_timeout,
        timeline=choose_timeline(timeline_path),
        rank=-1 if rank is None else rank,
    )
    demonstration.check(wanted)
    say_progress(f"$ relkit {shlex.join(demonstration.command_line(wanted)[3:])}")
    # The job's output is not this command's data: stdout holds the report alone.
    result = demonstration.run(
        wanted, environ={**os.environ, **as_variables()}, output=sys.stderr.fileno()
    )
    code = finish(_report(wanted, result), fmt, output, force)
    pictures = [path for path in result.files if path.suffix in (".svg", ".html")]
    if wanted.guilty is not None and pictures and fmt is None:
        click.echo("\nOpen in a browser:")
        for path in pictures:
            click.echo(f"  {path}")
    return code
