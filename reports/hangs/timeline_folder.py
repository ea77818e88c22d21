"""Everything that a person or a script finds in the timeline folder after a hang."""

from __future__ import annotations

from pathlib import Path

from relkit.findings import Report
from relkit.hang_picture.folder import HangEvidence, ReadProgress, read_hang
from relkit.reports.hangs import hang_page
from relkit.reports.merged_files import draw, text_writer, write_each, writers
from relkit.stacks.merge import Merged, merge_dumps

PAGE = "report.html"


def page_of(evidence: HangEvidence) -> str:
    """The page of a hang, whoever asks for it."""
    merged = evidence.merged
    return hang_page.render(
        evidence.report,
        evidence.picture,
        draw(merged, subtitle(evidence.report, merged)) if merged else {},
    )


def write(folder: Path, *, progress: ReadProgress | None = None) -> list[Path]:
    """Draw what a launcher has left in its timeline folder: the page, and the merged stacks.

    Nothing is written where the folder has become that of another incident meanwhile. A file that
    cannot be written does not cost the others.

    Args:
        folder: with report.json and the ranks' .stacktrace files.
        progress: see read_hang.

    Returns:
        The files, in the order in which a person should open them.

    Raises:
        RelkitError: what the folder holds cannot be used.
        UnwritablePath: the folder or a file of it cannot be written.
    """
    incident = _identity(folder)
    evidence = read_hang(folder, progress=progress, has_stacks=True)
    merged = evidence.merged or merge_dumps((), int(evidence.report.facts["world_size"]))
    svgs = draw(merged, subtitle(evidence.report, merged))
    page = hang_page.render(evidence.report, evidence.picture, svgs if evidence.merged else {})
    files = {PAGE: text_writer(lambda: page), **writers(merged, svgs)}
    if _identity(folder) != incident:
        return []
    written = write_each(folder, files)
    order = (PAGE, "mixed_stack.svg", "py_stack.svg", "cpp_stack.svg")
    return sorted(written, key=lambda path: order.index(path.name) if path.name in order else 9)


def subtitle(report: Report, merged: Merged) -> str:
    """What stands below the title of each picture."""
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


def _identity(folder: Path) -> tuple[int, int]:
    """Tell one report.json from the next."""
    status = (folder / "report.json").stat()
    return status.st_ino, status.st_mtime_ns
