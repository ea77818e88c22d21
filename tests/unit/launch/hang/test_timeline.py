"""The timeline folder: where it goes, and how old files make room."""

from __future__ import annotations

import json
import os
import stat
import tempfile
from pathlib import Path

import pytest

from relkit.commands.shared import incident
from relkit.hang_picture import actions
from relkit.launch.hang import timeline
from relkit.reports.hangs import timeline_folder
from relkit.stacks.model import RankDump
from tests.unit.hang_picture.hang_folders import blocked_job, write_hang


def test_an_own_folder_is_made_private(tmp_path: Path) -> None:
    wanted = tmp_path / "a" / "b"
    assert timeline.choose_folder(wanted) == (wanted, "")
    assert stat.S_IMODE(wanted.stat().st_mode) == 0o700
    assert list(wanted.iterdir()) == []


def test_an_unwritable_folder_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    blocked = tmp_path / "file"
    blocked.write_text("")
    folder, note = timeline.choose_folder(blocked / "t")
    assert folder == tmp_path / "home" / "timeline"
    assert str(blocked) in note
    assert str(folder) in note


def test_the_last_resort_is_a_private_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("HOME", str(blocked))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder, note = timeline.choose_folder(blocked / "t")
    assert folder.parent == tmp_path
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert str(folder) in note


def test_nothing_to_rotate(tmp_path: Path) -> None:
    assert timeline.rotate(tmp_path) is None


def test_rotation_moves_own_files_only(tmp_path: Path) -> None:
    timeline.write_dumps(tmp_path, [RankDump(rank, 2, 9, "S", job_id="old") for rank in (0, 1)])
    (tmp_path / "report.json").write_text(json.dumps({"job_id": "../old run"}))
    (tmp_path / "py_stack").write_text("x")
    (tmp_path / "actions.jsonl").write_text("what was done")
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "x.stacktrace").write_text("not ours by name")
    target = timeline.rotate(tmp_path)
    assert target == tmp_path / "previous-_old_run"
    moved = {path.name for path in target.iterdir()}
    assert moved == {
        "00000-00002.stacktrace",
        "00001-00002.stacktrace",
        "report.json",
        "py_stack",
        "actions.jsonl",
    }
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"notes.txt", "x.stacktrace", target.name}


def test_rotation_of_a_second_incident_replaces_the_first(tmp_path: Path) -> None:
    for text in ("one", "two"):
        (tmp_path / "report.json").write_text(json.dumps({"job_id": "a", "text": text}))
        target = timeline.rotate(tmp_path)
    assert target is not None
    assert json.loads((target / "report.json").read_text())["text"] == "two"


def test_rotation_does_not_go_through_a_link(tmp_path: Path) -> None:
    precious, folder = tmp_path / "precious", tmp_path / "timeline"
    precious.mkdir()
    folder.mkdir()
    (precious / "report.json").write_text("keep me")
    (folder / "previous-a").symlink_to(precious)
    (folder / "report.json").write_text(json.dumps({"job_id": "a"}))
    target = timeline.rotate(folder)
    assert [path.read_text() for path in precious.iterdir()] == ["keep me"]
    assert target is not None
    assert target.parent == folder
    assert target.name.startswith("previous-a-")
    assert [path.name for path in target.iterdir()] == ["report.json"]
    assert stat.S_IMODE(target.stat().st_mode) == 0o700


@pytest.mark.root
def test_rotation_leaves_somebody_elses_folder_alone(tmp_path: Path) -> None:
    theirs = tmp_path / "previous-a"
    theirs.mkdir()
    (theirs / "report.json").write_text("theirs")
    os.chown(theirs, 65534, 65534)
    (tmp_path / "report.json").write_text(json.dumps({"job_id": "a"}))
    target = timeline.rotate(tmp_path)
    assert target not in (None, theirs)
    assert (theirs / "report.json").read_text() == "theirs"


@pytest.mark.timeout(30)
def test_a_pipe_in_place_of_the_old_report_is_moved_away(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "report.json")
    assert timeline.rotate(tmp_path) == tmp_path / "previous-unknown"


@pytest.mark.parametrize("report", ["", "[]", "{", '{"job_id"', "[" * 100_000, '{"x": 1}'])
def test_rotation_survives_a_hostile_report(tmp_path: Path, report: str) -> None:
    (tmp_path / "report.json").write_text(report)
    assert timeline.rotate(tmp_path) == tmp_path / "previous-unknown"


def test_the_job_id_of_a_following_node_is_in_its_dumps(tmp_path: Path) -> None:
    timeline.write_dumps(tmp_path, [RankDump(1, 2, 9, "S", job_id="run7")])
    assert timeline.rotate(tmp_path) == tmp_path / "previous-run7"


def test_own_files_are_all_that_is_written(tmp_path: Path) -> None:
    write_hang(tmp_path, blocked_job(2, culprit=1))
    drawn = {path.name for path in timeline_folder.write(tmp_path)}
    assert drawn | {incident.REPORT, actions.FILE} == set(timeline.OWN_FILES)


def test_dumps_are_private(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        timeline.write_dumps(tmp_path, [RankDump(0, 1, 9, "S")])
    finally:
        os.umask(before)
    (path,) = tmp_path.iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def no_home() -> Path:
    raise RuntimeError("Could not determine home directory.")


def test_a_user_without_a_home_folder_gets_one_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "home", no_home)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    blocked = tmp_path / "file"
    blocked.write_text("")
    folder, note = timeline.choose_folder(blocked / "timeline")
    assert folder.parent == tmp_path
    assert str(folder) in note
    monkeypatch.setattr(timeline, "_writable", lambda _: False)
    assert timeline.default_folder() == Path("/root/timeline")
