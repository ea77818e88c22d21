"""Everything that a person or a script finds in the timeline folder after a hang."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from relkit.errors import UnwritablePath
from relkit.findings import Report
from relkit.output import as_json
from relkit.reports import html
from relkit.reports.merged_files import draw, text_writer, write_each, writers

if TYPE_CHECKING:
    from relkit.stacks.merge import Merged


def write(folder: Path, report: Report, merged: Merged) -> list[Path]:
    """Write the report and the merged stacks beside the ranks' .stacktrace files.

    A file that cannot be drawn or written does not cost the others: report.json comes first, and
    the error is raised when all have been tried.

    Args:
        folder: the timeline folder; made, private, where it is missing.
        report: the verdict.
        merged: the stacks of all ranks.

    Returns:
        The files, in the order in which a person should open them.

    Raises:
        UnwritablePath: the folder or a file of it cannot be written.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise UnwritablePath(f"cannot make {folder}: {error.strerror}") from error
    svgs = draw(merged, _subtitle(report, merged))
    files = {
        "report.json": text_writer(lambda: as_json(report)),
        "report.html": text_writer(lambda: html.render(report, svgs)),
        **writers(merged, svgs),
    }
    written = write_each(folder, files)
    order = ("report.html", "mixed_stack.svg", "py_stack.svg", "cpp_stack.svg", "report.json")
    return sorted(written, key=lambda path: order.index(path.name) if path.name in order else 9)


def _subtitle(report: Report, merged: Merged) -> str:
    parts = [f"job {merged.job_id}" if merged.job_id else ""]
    trigger = report.facts.get("trigger")
    parts.append(str(trigger) if trigger else "")
    culprits = report.facts.get("culprits")
    if isinstance(culprits, list) and culprits:
        names = ", ".join(str(rank) for rank in culprits[:8])
        parts.append(f"at fault: rank{'s' if len(culprits) > 1 else ''} {names}")
    if merged.refused:
        parts.append(f"{len(merged.refused)} file{'s' if len(merged.refused) > 1 else ''} refused")
    return "  ·  ".join(part for part in parts if part)
