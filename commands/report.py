"""relkit report: one page for a hang, from the folder that it left."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

from relkit.commands.shared.options import NamedPath, finish
from relkit.commands.shared.progress import progress_bar
from relkit.log_lines import say_progress

PAGE = "report.html"
# Within the head of each page of a hang.
_MARK, _HEAD_BYTES = b'<meta name="generator" content="relkit hang">', 4096


@click.command()
@click.argument("hangdir", metavar="HANGDIR", type=NamedPath(path_type=Path))
@click.option(
    "--output",
    "-o",
    "page",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="PAGE",
    help=f"Write the page there.  [default: {PAGE} in HANGDIR; with --json, none]",
)
@click.option(
    "--force",
    "-f",
    is_flag=True,
    help=f"Replace an existing -o file, or a {PAGE} that is no page of a hang.",
)
@click.option("--jsonl", "fmt", flag_value="jsonl", help="One finding a line, as JSON.")
@click.option("--json", "fmt", flag_value="json", default=None, help="One JSON document.")
def report(hangdir: Path, page: Path | None, force: bool, fmt: str | None) -> int:
    """Make the page of a hang: who is at fault, what relkit did, what to do, and the proof.

    HANGDIR is the timeline folder of `relkit launch` or `relkit run`, or a folder with dumps of
    PyTorch's flight recorder, as `relkit hang analyze` takes them. The launcher makes this page at
    the hang; this command makes it of any folder. It is one file that needs nothing from elsewhere.

    \b
    Exit codes: 1 a rank is at fault, 3 no rank stands out.

    \b
    Examples:
      relkit report /root/timeline
      relkit report /tmp/nccl_traces -o page.html
      relkit report /root/timeline --json | jq '.blamed[0].place, .waits'
    """
    from relkit.hang_picture.folder import read_hang
    from relkit.hang_picture.page_facts import page_facts
    from relkit.output import require_new, write_atomic
    from relkit.reports.hangs.timeline_folder import page_of

    started = time.time()
    if page is not None:
        require_new(page, force=force)
    elif fmt is None:
        require_new(hangdir / PAGE, force=force or _is_own(hangdir / PAGE))
    with progress_bar("reading") as progress:
        evidence = read_hang(hangdir, progress=progress)
        target = page or (None if fmt else hangdir / PAGE)
        if target is not None:
            progress(description="drawing")
            write_atomic(target, page_of(evidence).encode(errors="replace"))
    made = page_facts(evidence, argv=sys.argv, started=started, duration_s=time.time() - started)
    code = finish(made, fmt, None, force)
    if target is not None:
        say_progress(f"wrote {target}")
    return code


def _is_own(path: Path) -> bool:
    """A page of a hang, which is made anew without asking; a page of anybody else's is not."""
    from relkit.files.input_file import open_input

    try:
        with open_input(path) as stream:
            return _MARK in stream.read(_HEAD_BYTES)
    except OSError:
        # A folder of that name: writing says so.
        return path.is_dir()
