"""The files of one merge, drawn and written side by side."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from relkit.errors import UnwritablePath
from relkit.ranks import RankSet
from relkit.reports import dot, merged_files
from relkit.reports.merged_files import draw, write_all, write_each, writers
from relkit.stacks.merge import Merged
from relkit.stacks.tree import StackTree
from tests.reports.trees import hang

IN_ORDER = [
    *[f"{view}_stack.svg" for view in ("mixed", "py", "cpp")],
    *[f"{view}_stack" for view in ("mixed", "py", "cpp")],
    "stack_graph.dot",
]


def merged() -> Merged:
    return Merged(8, RankSet.world(8), "41", hang("py"), hang("cpp"), hang("mixed"))


def test_they_are_those_that_are_written_one_by_one(tmp_path: Path) -> None:
    together, alone = tmp_path / "together", tmp_path / "alone"
    for folder in (together, alone):
        folder.mkdir()
    paths = write_all(together, merged(), "job 41", graph_timeout_s=60)
    assert [path.name for path in paths] == [*IN_ORDER, "stack_graph.svg"]
    write_each(alone, writers(merged(), draw(merged(), "job 41")))
    assert sorted(path.name for path in alone.iterdir()) == sorted(IN_ORDER)
    for path in alone.iterdir():
        assert (together / path.name).read_bytes() == path.read_bytes()


def test_without_graphviz_there_is_no_picture_of_the_graph(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dot, "picture", lambda *_arguments, **_options: None)
    paths = write_all(tmp_path, merged(), "", graph_timeout_s=60)
    assert [path.name for path in paths] == IN_ORDER


def test_a_text_that_cannot_be_written_costs_no_other_file(tmp_path: Path) -> None:
    (tmp_path / "py_stack").mkdir()
    with pytest.raises(UnwritablePath, match="py_stack"):
        write_all(tmp_path, merged(), "", graph_timeout_s=60)
    assert {path.name for path in tmp_path.iterdir()} == {*IN_ORDER, "stack_graph.svg"}


def test_the_texts_are_written_beside_the_pictures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each waits for the other: one after the other would never end.
    writing, drawing = threading.Event(), threading.Event()

    def write(path: Path, tree: StackTree) -> None:
        writing.set()
        assert drawing.wait(60)
        path.write_text(tree.view)

    def picture(*_arguments: object, **_options: object) -> None:
        drawing.set()
        assert writing.wait(60)

    monkeypatch.setattr(merged_files, "write_folded", write)
    monkeypatch.setattr(dot, "picture", picture)
    write_all(tmp_path, merged(), "", graph_timeout_s=60)
    assert (tmp_path / "cpp_stack").read_text() == "cpp"
