"""relkit report: one page for a hang, from the folder that it left."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

from relkit.commands.shared.options import finish
from relkit.commands.shared.progress import progress_bar

PAGE = "hang.html"


@click.command()
@click.argument("hangdir", metavar="HANGDIR", type=click.Path(path_type=Path))
@click.option(
    "--output",
    "-o",
    "page",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="PAGE",
    help=f"Write the page there.  [default: {PAGE} in HANGDIR; with --json, none]",
)
@click.option("--force", "-f", is_flag=True, help="Replace an existing -o file.")
@click.option("--jsonl", "fmt", flag_value="jsonl", help="One finding a line, as JSON.")
@click.option("--json", "fmt", flag_value="json", default=None, help="One JSON document.")
def report(hangdir: Path, page: Path | None, force: bool, fmt: str | None) -> int:
    """Make one page of a hang: verdict, what to type, who waits for whom, and the proof.

    HANGDIR is the timeline folder of `relkit launch` or `relkit run`, or a folder with dumps of
    PyTorch's flight recorder, as `relkit hang analyze` takes them. The page is one file that needs
    nothing from elsewhere: send it to a colleague.

    \b
    Exit codes: 1 a rank is at fault, 3 no rank stands out.

    \b
    Examples:
      relkit report /root/timeline
      relkit report /tmp/nccl_traces -o hang.html
      relkit report /root/timeline --json | jq '.blamed[0].place, .waits'
    """
    from relkit.hang_picture.folder import read_hang
    from relkit.hang_picture.page_facts import page_facts
    from relkit.output import require_new, write_atomic
    from relkit.reports.hangs import hang_page
    from relkit.reports.merged_files import draw

    started = time.time()
    if page is not None:
        require_new(page, force=force)
    with progress_bar("reading") as progress:
        evidence = read_hang(hangdir, progress=progress)
        target = page or (None if fmt else hangdir / PAGE)
        if target is not None:
            progress(description="drawing")
            svgs = draw(evidence.merged, "") if evidence.merged else {}
            text = hang_page.render(evidence.report, evidence.picture, svgs)
            write_atomic(target, text.encode(errors="replace"))
    made = page_facts(evidence, argv=sys.argv, started=started, duration_s=time.time() - started)
    code = finish(made, fmt, None, force)
    if target is not None:
        click.echo(f"wrote {target}", err=True)
    return code
