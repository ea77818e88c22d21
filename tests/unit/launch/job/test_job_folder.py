"""The job folder: shared by launchers, removed with the last one, swept after a kill."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from relkit.errors import UnwritablePath
from relkit.hook import environment
from relkit.launch.job.folder import LOCK, JobFolder


@pytest.fixture
def logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Shared memory is the test's own folder; returns what is said."""

    def prepare(job_id: str, _processes: int) -> Path:
        folder = tmp_path / job_id
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder

    monkeypatch.setattr(environment, "prepare_job_dir", prepare)
    monkeypatch.setattr(environment, "worker_environment", lambda *_: {"LD_PRELOAD": "x"})
    return []


def test_made_and_removed(logged: list[str], tmp_path: Path) -> None:
    folder = JobFolder(True, logged.append)
    path, extra = folder.prepare("a", 2)
    assert path == tmp_path / "a"
    assert extra == {"LD_PRELOAD": "x", "RELKIT_HOOK_FILES": "12"}
    folder.remove()
    assert not path.exists()
    assert logged == []


def test_goes_with_the_last_launcher(logged: list[str]) -> None:
    first, second = JobFolder(True, logged.append), JobFolder(True, logged.append)
    path, _ = first.prepare("a", 1)
    second.prepare("a", 1)
    assert path is not None
    first.remove()
    assert path.exists()
    second.remove()
    assert not path.exists()


def test_a_live_recorder_keeps_it(logged: list[str], tmp_path: Path) -> None:
    folder = JobFolder(True, logged.append)
    path, _ = folder.prepare("a", 1)
    assert path is not None
    (path / f"{os.getpid()}.rkhook").write_bytes(b"")
    folder.remove()
    assert path.exists()


def test_files_of_an_earlier_incarnation_are_dropped(logged: list[str]) -> None:
    folder = JobFolder(True, logged.append)
    path, _ = folder.prepare("a", 1)
    assert path is not None
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        gone.wait(20)
    (path / f"{gone.pid}.rkhook").write_bytes(b"")
    (path / f"{os.getpid()}.rkhook").write_bytes(b"")
    folder.prepare("a", 1)
    assert [each.stem for each in path.glob("*.rkhook")] == [str(os.getpid())]


def test_leftovers_are_swept_and_others_are_not(logged: list[str], tmp_path: Path) -> None:
    (tmp_path / "left").mkdir(mode=0o700)
    (tmp_path / "left" / LOCK).touch(mode=0o600)
    (tmp_path / "foreign").mkdir()
    (tmp_path / "private").mkdir(mode=0o700)
    held = JobFolder(True, logged.append)
    held.prepare("held", 1)
    JobFolder(True, logged.append).prepare("new", 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["foreign", "held", "new", "private"]


def test_without_the_hook(logged: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert JobFolder(False, logged.append).prepare("a", 1) == (None, {})
    monkeypatch.setenv("RELKIT_HOOK_DISABLE", "1")
    assert JobFolder(True, logged.append).prepare("a", 1) == (None, {})
    assert len(logged) == 2


def test_no_room_is_said_and_no_reason_to_fail(
    logged: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_job_id: str, _processes: int) -> Path:
        raise UnwritablePath("no room for the recorder's files")

    monkeypatch.setattr(environment, "prepare_job_dir", full)
    folder = JobFolder(True, logged.append)
    assert folder.prepare("a", 1) == (None, {})
    folder.remove()
    assert "hangs are not detected" in logged[0]


def test_a_static_program_is_run_without_the_hook_and_told(
    logged: list[str], tmp_path: Path
) -> None:
    source, program = tmp_path / "p.c", tmp_path / "p"
    source.write_text("int main(void) { return 0; }\n")
    subprocess.run(["cc", "-static", "-o", str(program), str(source)], check=True, timeout=60)
    assert JobFolder(True, logged.append, str(program)).prepare("a", 1) == (None, {})
    assert "linked statically" in logged[0]


def test_a_limit_that_the_user_has_set_counts(
    logged: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RELKIT_HOOK_FILES", "100")
    _, extra = JobFolder(True, logged.append).prepare("a", 2)
    assert extra["RELKIT_HOOK_FILES"] == "100"
