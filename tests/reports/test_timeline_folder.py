"""The files that a hang leaves behind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from relkit.errors import UnwritablePath
from relkit.findings import Finding, Report, Status
from relkit.ranks import RankSet
from relkit.reports import timeline_folder
from relkit.stacks.merge import Merged
from tests.reports.picture import Picture
from tests.reports.trees import hang, hostile

REPORT = Report("hang", (Finding("RK-HANG-001", Status.FAIL, "rank 2 hangs"),), {"culprits": [2]})
NAMES = {
    "report.html", "report.json", "mixed_stack.svg", "py_stack.svg", "cpp_stack.svg", "py_stack",
    "cpp_stack", "mixed_stack", "stack_graph.dot",
}  # fmt: skip


def merged(job_id: str = "demo-41") -> Merged:
    return Merged(8, RankSet.world(8), job_id, hang("py"), hang("cpp"), hang("mixed"))


def test_all_files_are_there_and_private(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "timeline"
    written = timeline_folder.write(folder, REPORT, merged())
    assert {path.name for path in written} == NAMES
    assert {path.name for path in folder.iterdir()} == NAMES
    assert {path.stat().st_mode & 0o777 for path in written} == {0o600}
    assert folder.stat().st_mode & 0o777 == 0o700
    assert json.loads((folder / "report.json").read_text())["culprits"] == [2]
    assert "holds up the job" in (folder / "report.html").read_text()
    for name in ("mixed", "py", "cpp"):
        text = (folder / f"{name}_stack.svg").read_text()
        assert Picture.parse(text).boxes
        assert "job demo-41" in text
    lines = (folder / "py_stack").read_text().splitlines()
    assert len(lines) == 4
    assert any("next_batch@/home/ada/gpt/examples/train.py:52@2|0-1/3-7" in x for x in lines)


def test_writing_again_replaces_the_files(tmp_path: Path) -> None:
    timeline_folder.write(tmp_path, REPORT, merged("first"))
    timeline_folder.write(tmp_path, REPORT, merged("second"))
    assert "job second" in (tmp_path / "py_stack.svg").read_text()
    assert {path.name for path in tmp_path.iterdir()} == NAMES


def test_a_file_in_the_way_costs_only_itself(tmp_path: Path) -> None:
    (tmp_path / "py_stack.svg").mkdir()
    with pytest.raises(UnwritablePath, match=r"py_stack\.svg"):
        timeline_folder.write(tmp_path, REPORT, merged())
    assert (tmp_path / "report.json").is_file()
    assert (tmp_path / "cpp_stack").is_file()


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UnwritablePath, match="cannot make"):
        timeline_folder.write(tmp_path / "file" / "below", REPORT, merged())


def test_hostile_names_do_not_stop_the_files(tmp_path: Path) -> None:
    tree = hostile()
    bad = Merged(8, RankSet.world(8), "<b>\udcff", tree, tree, tree, refused=(("a", "b"),))
    written = timeline_folder.write(tmp_path, REPORT, bad)
    assert len(written) == len(NAMES)
    assert (tmp_path / "report.html").stat().st_size < 1_000_000
    assert "1 file refused" in (tmp_path / "py_stack.svg").read_text()
