"""Merged stacks -> folded texts, flame SVGs and the DOT graph, as files in one folder."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from relkit.errors import UnwritablePath
from relkit.output import write_atomic
from relkit.reports import dot
from relkit.reports.drawing.content_policy import add_to_picture
from relkit.reports.flames import flame_svg
from relkit.reports.flames.flame_boxes import Box, boxes
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


def draw(
    merged: Merged, subtitle: str, drawn: dict[str, list[Box]] | None = None
) -> dict[str, str]:
    """The flame SVG of each view.

    Args:
        merged: the stacks of all ranks.
        subtitle: of each picture.
        drawn: the boxes of views for which they are made already.
    """
    made = drawn or {}
    return {
        name: flame_svg.render(tree, title=TITLES[name], subtitle=subtitle, drawn=made.get(name))
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


def writers(merged: Merged, svgs: dict[str, str]) -> dict[str, Callable[[Path], None]]:
    """What writes the merged stacks, file by file, for `write_each`.

    Args:
        merged: the stacks of all ranks.
        svgs: the pictures, from `draw`.
    """
    graph = dot.stack_dot(merged.mixed)
    return {
        **_pictures(svgs),
        **_texts(merged),
        "stack_graph.dot": text_writer(partial(str, graph)),
    }


def _pictures(svgs: dict[str, str]) -> dict[str, Callable[[Path], None]]:
    return {f"{name}_stack.svg": text_writer(partial(str, svg)) for name, svg in svgs.items()}


def _texts(merged: Merged) -> dict[str, Callable[[Path], None]]:
    return {
        f"{name}_stack": partial(write_folded, tree=tree) for name, tree in views(merged).items()
    }


def write_all(folder: Path, merged: Merged, subtitle: str, *, graph_timeout_s: float) -> list[Path]:
    """Draw the merged stacks and write all that `writers` writes, and stack_graph.svg.

    The texts, and graphviz's picture, are made beside the pictures of our own.

    Args:
        folder: an existing folder.
        merged: the stacks of all ranks.
        subtitle: of the pictures.
        graph_timeout_s: give graphviz's `dot` that long; what it is not done with is left out.

    Returns:
        The files, in the order in which a person should open them.

    Raises:
        UnwritablePath: the first that failed, raised when all have been tried.
    """
    with ThreadPoolExecutor(1) as writer, ThreadPoolExecutor(1) as grapher:
        texts = {
            name: writer.submit(write, folder / name) for name, write in _texts(merged).items()
        }
        mixed = boxes(merged.mixed)
        graph = dot.stack_dot(merged.mixed, mixed)
        picture = grapher.submit(dot.picture, graph, timeout_s=graph_timeout_s)
        files = _pictures(draw(merged, subtitle, {"mixed": mixed}))
        files |= {name: _when_done(text) for name, text in texts.items()}
        files["stack_graph.dot"] = text_writer(partial(str, graph))
        svg = picture.result()
        if svg is not None:
            files["stack_graph.svg"] = text_writer(partial(add_to_picture, svg))
        return write_each(folder, files)


def _when_done(written: Future[None]) -> Callable[[Path], None]:
    return lambda _path: written.result()
