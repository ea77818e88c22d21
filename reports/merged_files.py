"""Merged stacks -> folded texts, flame SVGs and the DOT graph, as files in one folder."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from relkit.errors import UnwritablePath
from relkit.output import write_atomic
from relkit.reports import dot, flame_svg
from relkit.reports.content_policy import add_to_picture
from relkit.stacks.folded import write_folded

if TYPE_CHECKING:
    from relkit.stacks.merge import Merged
    from relkit.stacks.tree import StackTree

TITLES = {
    "mixed": "Python and native stacks, merged over all ranks",
    "py": "Python stacks, merged over all ranks",
    "cpp": "Native stacks, merged over all ranks",
}


def views(merged: Merged) -> dict[str, StackTree]:
    """The three trees by the name that their files start with, the most telling first."""
    return {"mixed": merged.mixed, "py": merged.python, "cpp": merged.native}


def draw(merged: Merged, subtitle: str) -> dict[str, str]:
    """The flame SVG of each view."""
    return {
        name: flame_svg.render(tree, title=TITLES[name], subtitle=subtitle)
        for name, tree in views(merged).items()
    }


def write_each(folder: Path, writers: dict[str, Callable[[Path], None]]) -> list[Path]:
    """Write files one by one; one that cannot be written does not cost the others.

    Args:
        folder: an existing folder.
        writers: file name -> what writes it to the path it is given.

    Returns:
        The files, in the order of `writers`.

    Raises:
        UnwritablePath: the first that failed, raised when all have been tried.
    """
    failed: list[UnwritablePath] = []
    written: list[Path] = []
    for name, write in writers.items():
        try:
            write(folder / name)
            written.append(folder / name)
        except UnwritablePath as error:
            failed.append(error)
    if failed:
        raise failed[0]
    return written


def text_writer(make: Callable[[], str]) -> Callable[[Path], None]:
    """A writer of one text, made only when it is its turn."""
    return lambda path: write_atomic(path, make().encode(errors="replace"))


def writers(
    merged: Merged, svgs: dict[str, str], *, graph_timeout_s: float = 0.0
) -> dict[str, Callable[[Path], None]]:
    """What writes the merged stacks, file by file, for `write_each`.

    Args:
        merged: the stacks of all ranks.
        svgs: the pictures, from `draw`.
        graph_timeout_s: give graphviz's `dot` that long for stack_graph.svg; 0 leaves the picture
            out. stack_graph.dot is text and always written.
    """
    graph = dot.stack_dot(merged.mixed)
    files = {f"{name}_stack.svg": text_writer(partial(str, svg)) for name, svg in svgs.items()}
    for name, tree in views(merged).items():
        files[f"{name}_stack"] = partial(write_folded, tree=tree)
    files["stack_graph.dot"] = text_writer(partial(str, graph))
    picture = dot.picture(graph, timeout_s=graph_timeout_s) if graph_timeout_s else None
    if picture is not None:
        files["stack_graph.svg"] = text_writer(partial(add_to_picture, picture))
    return files
