"""relkit stacks merge: all ranks' dumps -> folded stacks, flame SVGs, and who stands apart."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

from relkit.commands.shared.options import NamedPath
from relkit.commands.shared.progress import progress_bar
from relkit.errors import UsageProblem
from relkit.output import emit


@click.command()
@click.argument("dumps", metavar="PATH", required=False, type=NamedPath(path_type=Path))
@click.option(
    "--path",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="The same as PATH, as xpu_timer's viewer spells it.",
)
@click.option("--job-id", help="Merge the files of this job.  [default: the one captured last]")
@click.option(
    "--output",
    "-o",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for the results; made where missing.  [default: PATH]",
)
@click.option("--jsonl", "fmt", flag_value="jsonl", help="One finding a line, as JSON.")
@click.option("--json", "fmt", flag_value="json", default=None, help="One JSON document.")
def merge(
    dumps: Path | None,
    path: Path | None,
    job_id: str | None,
    folder: Path | None,
    fmt: str | None,
) -> int:
    """Merge the .stacktrace files in PATH, relkit's or xpu_timer's, into one picture.

    Writes py_stack, cpp_stack and mixed_stack as folded text and as SVG, and stack_graph as DOT (a
    picture too, where graphviz is installed). Every frame says which ranks have it and which have
    not; ranks without a usable file are shown as absent.

    \b
    Examples:
      relkit stacks merge /root/timeline
      relkit stacks merge /shared/dumps --job-id my-run -o merged --json
      relkit stacks merge --path /root/timeline
    """
    source = _one_of(dumps, path)
    from relkit.reports.merged_files import write_all
    from relkit.stacks.collector import without_collector
    from relkit.stacks.folder import output_folder
    from relkit.stacks.merge import merge_folder
    from relkit.stacks.merge_report import merge_report

    started = time.time()
    with progress_bar("reading") as progress, without_collector():
        merged = merge_folder(source, job_id=job_id, progress=progress)
        results = output_folder(folder or source)
        progress(description="drawing")
        subtitle = f"job {merged.job_id}" if merged.job_id else ""
        written = write_all(results, merged, subtitle, graph_timeout_s=10.0)
    report = merge_report(
        merged, written, argv=sys.argv, started=started, duration_s=time.time() - started
    )
    emit(report, fmt or "table")
    if fmt is None:
        for name in written:
            click.echo(name)
    return report.exit_code


def _one_of(dumps: Path | None, path: Path | None) -> Path:
    """PATH or --path; both only where they are the same folder."""
    if dumps is not None and path is not None and dumps.resolve() != path.resolve():
        raise UsageProblem(
            f"PATH is {dumps} and --path is {path}", next_step="Name one folder to merge."
        )
    given = dumps or path
    if given is None:
        raise UsageProblem(
            "no folder of .stacktrace files was named",
            next_step="Write: relkit stacks merge /root/timeline",
        )
    return given
