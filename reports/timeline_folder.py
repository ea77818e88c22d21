"""Everything that a person or a script finds in the timeline folder after a hang."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from relkit.errors import UnwritablePath
from relkit.findings import Report
from relkit.output import as_json, write_atomic
from relkit.reports import flame_svg, html
from relkit.stacks.folded import folded_lines

if TYPE_CHECKING:
    from relkit.stacks.merge import Merged

TITLES = {
    "mixed": "Python and native stacks, merged over all ranks",
    "py": "Python stacks, merged over all ranks",
    "cpp": "Native stacks, merged over all ranks",
}


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
    subtitle = _subtitle(report, merged)
    views = {"mixed": merged.mixed, "py": merged.python, "cpp": merged.native}
    svgs = {
        name: flame_svg.render(tree, title=TITLES[name], subtitle=subtitle)
        for name, tree in views.items()
    }
    contents: dict[str, Callable[[], str]] = {
        "report.json": lambda: as_json(report),
        "report.html": lambda: html.render(report, svgs),
        "mixed_stack.svg": lambda: svgs["mixed"],
        "py_stack.svg": lambda: svgs["py"],
        "cpp_stack.svg": lambda: svgs["cpp"],
        "py_stack": lambda: "".join(f"{line}\n" for line in folded_lines(merged.python)),
        "cpp_stack": lambda: "".join(f"{line}\n" for line in folded_lines(merged.native)),
    }
    failed: list[UnwritablePath] = []
    written: list[Path] = []
    for name, make in contents.items():
        path = folder / name
        try:
            write_atomic(path, make().encode(errors="replace"))
            written.append(path)
        except UnwritablePath as error:
            failed.append(error)
    if failed:
        raise failed[0]
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
