"""The renaming of an emergency save, by whoever is asked, also where another one died in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from relkit.checkpoint import iteration_folder
from relkit.checkpoint.manifest import read_manifest
from relkit.ttp.emergency_save import Saver
from relkit.ttp.handlers import Handlers
from relkit.ttp.messages import Commit, Committed, SaveFailed
from relkit.ttp.rank_state import RankState
from relkit.ttp.relay import Notes

STEP = 5


def saver(root: Path) -> Saver:
    handlers = Handlers(root, save=lambda what: [], roll_forward=lambda step: None)
    return Saver(RankState(0, STEP), handlers, Notes(), lambda note: None)


def written(root: Path, content: bytes) -> Commit:
    """What survivors leave for the commit of one file."""
    folder = iteration_folder.begin(root, STEP)
    record = iteration_folder.write_file(folder, "w.pt", lambda out: out.write(content))
    return Commit(1, STEP, {record.name: (record.sha256, record.size_bytes)})


def saved(root: Path) -> bytes:
    step = iteration_folder.latest(root)
    assert step == STEP
    folder = root / iteration_folder.iteration_name(step)
    assert iteration_folder.problems(folder) == ()
    assert read_manifest(folder).facts == {"saved_by": "try-to-persist"}
    assert iteration_folder.half_written(root) == ()
    return (folder / "w.pt").read_bytes()


def test_a_save_gets_its_name_and_the_tracker_names_it(tmp_path: Path) -> None:
    assert isinstance(saver(tmp_path).commit(written(tmp_path, b"one")), Committed)
    assert saved(tmp_path) == b"one"


@pytest.mark.parametrize("tracked", [False, True], ids=["before the tracker", "after it"])
def test_another_one_died_after_the_renaming(tmp_path: Path, tracked: bool) -> None:
    command = written(tmp_path, b"one")
    assert isinstance(saver(tmp_path).commit(command), Committed)
    if not tracked:
        (tmp_path / iteration_folder.TRACKER).unlink()
    assert isinstance(saver(tmp_path).commit(command), Committed)
    assert saved(tmp_path) == b"one"


def test_another_one_died_before_the_renaming(tmp_path: Path) -> None:
    command = written(tmp_path, b"one")
    (tmp_path / "iter_0000005_tmp" / "manifest.json").write_text("half of")
    assert isinstance(saver(tmp_path).commit(command), Committed)
    assert saved(tmp_path) == b"one"


def test_an_older_save_of_the_same_step_is_not_taken_for_this_one(tmp_path: Path) -> None:
    assert isinstance(saver(tmp_path).commit(written(tmp_path, b"one")), Committed)
    assert isinstance(saver(tmp_path).commit(written(tmp_path, b"two")), Committed)
    assert saved(tmp_path) == b"two"


def test_a_file_that_is_not_there_is_no_commit(tmp_path: Path) -> None:
    command = written(tmp_path, b"one")
    (tmp_path / "iter_0000005_tmp" / "w.pt").unlink()
    failed = saver(tmp_path).commit(command)
    assert isinstance(failed, SaveFailed)
    assert "is missing" in failed.sentence
    assert iteration_folder.latest(tmp_path) is None
