"""What another user planted under a name of ours is refused, whatever it looks like."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from relkit.files.private_file import is_private_folder, open_private, read_private

NOBODY = 65534


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "status.json"
    path.write_bytes(b"mine")
    path.chmod(0o600)
    return path


def test_our_own_file_is_read(own: Path) -> None:
    assert read_private(own, 100) == b"mine"


def test_a_file_that_is_made_is_private(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        os.close(open_private(tmp_path / "lock", os.O_RDWR | os.O_CREAT))
    finally:
        os.umask(before)
    assert (tmp_path / "lock").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("mode", [0o604, 0o640, 0o602, 0o620])
def test_a_file_that_others_may_read_or_write_is_refused(own: Path, mode: int) -> None:
    own.chmod(mode)
    with pytest.raises(PermissionError, match="other users"):
        open_private(own)


def test_a_link_is_not_followed(own: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(own)
    with pytest.raises(OSError, match="symbolic links"):
        open_private(link)


def test_a_pipe_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(OSError, match="not a regular file"):
        open_private(tmp_path / "pipe")


def test_a_larger_file_is_refused(own: Path) -> None:
    with pytest.raises(OSError, match="larger than 3 bytes"):
        read_private(own, 3)


@pytest.mark.root
@pytest.mark.root
def test_another_users_file_is_refused_though_it_is_private(own: Path) -> None:
    os.chown(own, NOBODY, NOBODY)
    with pytest.raises(PermissionError, match="belongs to user 65534"):
        read_private(own, 100)


def test_descriptors_are_not_left_open_by_a_refusal(own: Path) -> None:
    own.chmod(0o644)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        with pytest.raises(PermissionError):
            open_private(own)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_folder_is_private_where_nobody_else_can_look_into_it(tmp_path: Path) -> None:
    folder = tmp_path / "relkit-0"
    assert not is_private_folder(folder)
    folder.mkdir(mode=0o700)
    assert is_private_folder(folder)
    folder.chmod(0o755)
    assert not is_private_folder(folder)
    folder.chmod(0o700)
    (tmp_path / "link").symlink_to(folder)
    assert not is_private_folder(tmp_path / "link")


@pytest.mark.root
@pytest.mark.root
def test_another_users_folder_is_not_private(tmp_path: Path) -> None:
    folder = tmp_path / "relkit-0"
    folder.mkdir(mode=0o700)
    os.chown(folder, NOBODY, NOBODY)
    assert not is_private_folder(folder)
