"""The files that a hang leaves behind."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from relkit.errors import RelkitError, UnwritablePath
from relkit.hang.model import JobView
from relkit.hang_picture.folder import read_hang
from relkit.reports.hangs import hang_page, timeline_folder
from tests.reports.picture import Picture
from tests.unit.hang_picture.hang_folders import blocked_job, died_job, write_hang

MADE = {
    "report.html", "mixed_stack.svg", "py_stack.svg", "cpp_stack.svg", "py_stack",
    "cpp_stack", "mixed_stack", "stack_graph.dot",
}  # fmt: skip


def left(folder: Path, hung: JobView) -> Path:
    write_hang(folder, hung, started=1.79e9)
    return folder


def test_all_files_are_there_and_private(tmp_path: Path) -> None:
    folder = left(tmp_path / "timeline", blocked_job(4))
    before = {path.name for path in folder.iterdir()}
    written = timeline_folder.write(folder)
    assert written[0] == folder / "report.html"
    assert {path.name for path in written} == MADE
    assert {path.name for path in folder.iterdir()} == MADE | before
    assert {path.stat().st_mode & 0o777 for path in written} == {0o600}
    for name in ("mixed", "py", "cpp"):
        text = (folder / f"{name}_stack.svg").read_text()
        assert Picture.parse(text).boxes
        assert "job job-1" in text
        assert "at fault: rank 2" in text


def test_the_page_is_that_of_relkit_report(tmp_path: Path) -> None:
    folder = left(tmp_path, blocked_job(4))
    timeline_folder.write(folder)
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert page == timeline_folder.page_of(read_hang(folder))
    assert "Rank 2 holds up the job" in page
    assert page.count('class="rk-flame"') == 3


def test_ranks_that_all_died_leave_a_page_without_pictures(tmp_path: Path) -> None:
    hung = died_job(2, culprit=1)
    gone = replace(hung.ranks[0], alive=False, dump=None, exit_code=-9, process_state="")
    folder = left(tmp_path, replace(hung, ranks=(gone, hung.ranks[1])))
    assert {path.name for path in timeline_folder.write(folder)} == MADE
    assert 'class="picture"' not in (folder / "report.html").read_text(encoding="utf-8")


def test_writing_again_replaces_the_files(tmp_path: Path) -> None:
    timeline_folder.write(left(tmp_path, replace(blocked_job(4), trigger="first look")))
    timeline_folder.write(left(tmp_path, replace(blocked_job(4), trigger="second look")))
    assert "second look" in (tmp_path / "py_stack.svg").read_text()


def test_nothing_is_mixed_into_the_files_of_the_next_incident(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = left(tmp_path, blocked_job(4))
    render = hang_page.render

    def and_then_the_job_hangs_again(*of: object, **more: object) -> str:
        (folder / "report.json").unlink()
        left(folder, blocked_job(2, culprit=1))
        return render(*of, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(hang_page, "render", and_then_the_job_hangs_again)
    assert timeline_folder.write(folder) == []
    assert not MADE & {path.name for path in folder.iterdir()}


def test_a_file_in_the_way_costs_only_itself(tmp_path: Path) -> None:
    folder = left(tmp_path, blocked_job(4))
    (tmp_path / "py_stack.svg").mkdir()
    with pytest.raises(UnwritablePath, match=r"py_stack\.svg"):
        timeline_folder.write(folder)
    assert (tmp_path / "report.html").is_file()
    assert (tmp_path / "cpp_stack").is_file()


def test_a_folder_without_a_hang_is_told(tmp_path: Path) -> None:
    with pytest.raises((RelkitError, OSError)):
        timeline_folder.write(tmp_path)
    (tmp_path / "report.json").write_text(json.dumps({"schema": "relkit.netcheck/1"}))
    with pytest.raises(RelkitError):
        timeline_folder.write(tmp_path)


def test_hostile_names_do_not_stop_the_files(tmp_path: Path) -> None:
    hostile = "<script>alert(1)</script>\u202e\"'&"
    views = tuple(replace(v, host=hostile, error=hostile) for v in blocked_job(4).ranks)
    folder = left(tmp_path, replace(blocked_job(4), ranks=views, job_id=hostile, trigger=hostile))
    actions = [{"unix_s": 1.79e9, "text": hostile, "ends_ranks": 1}, {"unix_s": "x"}, 5]
    lines = "".join(json.dumps(each) + "\n" for each in actions)
    (folder / "actions.jsonl").write_text(lines + "{\n")
    assert len(timeline_folder.write(folder)) == len(MADE)
    text = (folder / "report.html").read_text(encoding="utf-8")
    assert "<script>alert" not in text
    assert "\u202e" not in text
    assert text.count('<span class="what">') == 1
    assert len(text) < 1_000_000
