"""The folder of workers' sockets: private, removed at the end, swept after a kill."""

from __future__ import annotations

import fcntl
import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from relkit.launch.job.socket_folder import SOCKET_DIR, SocketFolder

_KILLED = """
import os, signal
from relkit.launch.job.socket_folder import SocketFolder
print(SocketFolder(print).begin()["RELKIT_SOCKET_DIR"], flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delenv("RELKIT_WORKER_SERVER", raising=False)
    return tmp_path


def test_only_this_user_gets_in_and_it_goes_with_the_launcher() -> None:
    folder = SocketFolder(print)
    first, second = folder.begin(), folder.begin()
    assert first == second == {"RELKIT_SOCKET_DIR": str(folder.path)}
    path = folder.path
    assert path is not None
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    (path / "17.sock").touch()
    folder.remove()
    assert not path.exists()
    folder.remove()


def test_a_person_may_say_no(monkeypatch: pytest.MonkeyPatch, temporary: Path) -> None:
    monkeypatch.setenv("RELKIT_WORKER_SERVER", "0")
    folder = SocketFolder(print)
    assert folder.begin() == {}
    assert folder.without_hook == "hangs are not detected"
    assert list(temporary.iterdir()) == []


@pytest.mark.timeout(60)
def test_one_that_a_killed_launcher_left_is_swept_and_no_other(temporary: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _KILLED],
        env={**os.environ, "TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    left = Path(done.stdout.strip())
    assert left.is_dir()
    (temporary / "relkit-ws-foreign").mkdir(mode=0o700)
    mine, other = SocketFolder(print), SocketFolder(print)
    mine.begin()
    assert not left.exists()
    other.begin()
    assert mine.path is not None
    assert mine.path.is_dir()
    assert (temporary / "relkit-ws-foreign").is_dir()
    mine.remove()
    other.remove()


def test_sockets_of_killed_workers_do_not_keep_the_next_ones_from_listening() -> None:
    folder = SocketFolder(print)
    folder.begin()
    assert folder.path is not None
    left = folder.path / "4711.sock"
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(left))
    try:
        assert folder.begin() == {SOCKET_DIR: str(folder.path)}
        assert not left.exists()
        assert (folder.path / "launcher.lock").is_file()
    finally:
        folder.remove()


def test_another_launcher_that_starts_at_this_moment_leaves_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mine, other = SocketFolder(print), SocketFolder(print)
    lock = fcntl.flock

    def between(handle: int, operation: int) -> None:
        monkeypatch.setattr("fcntl.flock", lock)
        other.begin()
        lock(handle, operation)

    # Its lock file is there, and not locked yet.
    monkeypatch.setattr("fcntl.flock", between)
    mine.begin()
    for each in (mine.path, other.path):
        assert each is not None
        assert each.is_dir()
    mine.remove()
    other.remove()


def test_no_room_for_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**_: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.mkdtemp", full)
    said: list[str] = []
    assert SocketFolder(said.append).begin() == {}
    assert said == ["no folder for workers' sockets: No space left on device"]


def test_a_path_that_no_socket_can_have_is_not_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / ("x" * 90)))
    folder = SocketFolder(print)
    folder.begin()
    try:
        assert folder.path is not None
        assert len(str(folder.path / "4194304.sock")) < 108
    finally:
        folder.remove()
