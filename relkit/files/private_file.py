"""Opens the files that relkit's processes leave for each other, and nobody else's.

Everybody may create a folder of any name in /dev/shm or in the temporary folder. What stands in a
file there is only believed where this user alone can have written it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def home_folder() -> Path | None:
    """Where ~ is; None for a user without HOME and without an entry in the password file."""
    try:
        return Path.home()
    except RuntimeError:
        return None


def open_private(path: Path, flags: int = os.O_RDONLY) -> int:
    """Open a regular file that belongs to this user alone.

    Never follows a link in the last part of the path, unless it is /proc's own of a descriptor of
    this process. Never waits (a pipe or a device of that name is refused), and is not inherited by
    programs that are started.

    Args:
        path: the file. Its folder is to be judged by `is_private_folder`.
        flags: as of os.open; a file that O_CREAT makes gets mode 0600.

    Returns:
        The descriptor; the caller closes it.

    Raises:
        OSError: it cannot be opened, or is somebody else's, or others may read or write it.
    """
    always = os.O_CLOEXEC | os.O_NONBLOCK
    if path.parent != Path(f"/proc/{os.getpid()}/fd"):
        always |= os.O_NOFOLLOW
    descriptor = os.open(path, flags | always, 0o600)
    try:
        _require_private(os.fstat(descriptor), path, stat.S_ISREG)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def read_private(path: Path, limit_bytes: int) -> bytes:
    """The contents of a file that belongs to this user alone.

    Args:
        path: the file; limit_bytes: a larger one is refused.

    Raises:
        OSError: as `open_private`; EFBIG where it is larger.
    """
    with os.fdopen(open_private(path), "rb") as stream:
        data = stream.read(limit_bytes + 1)
    if len(data) > limit_bytes:
        raise OSError(errno.EFBIG, f"larger than {limit_bytes} bytes", str(path))
    return data


def open_own_folder(path: Path) -> int:
    """Open a folder in a place where others may write too; made, private, where it is missing.

    A link that somebody put there is not followed: with the descriptor as `dir_fd`, all that is
    written and removed is in this folder.

    Args:
        path: the folder; the one above it must exist, and may be a link.

    Returns:
        The descriptor; the caller closes it.

    Raises:
        OSError: it cannot be made or opened, is a link or no folder, or belongs to somebody who is
            neither this user nor root.
    """
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    owner = os.fstat(descriptor).st_uid
    if owner not in (os.geteuid(), 0):
        os.close(descriptor)
        raise PermissionError(errno.EACCES, f"belongs to user {owner}", str(path))
    return descriptor


def is_private_folder(folder: Path) -> bool:
    """Whether this is a folder of this user's, no link, that nobody else may look into."""
    try:
        _require_private(folder.lstat(), folder, stat.S_ISDIR)
    except OSError:
        return False
    return True


def _require_private(status: os.stat_result, path: Path, is_kind: Callable[[int], bool]) -> None:
    if not is_kind(status.st_mode):
        raise OSError(errno.EINVAL, "not a regular file or folder", str(path))
    if status.st_uid != os.geteuid():
        raise PermissionError(errno.EACCES, f"belongs to user {status.st_uid}", str(path))
    if status.st_mode & _OTHERS:
        raise PermissionError(errno.EACCES, "other users may read or write it", str(path))
