"""Where the history is kept, and whether a database can live there."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from relkit.errors import RelkitError
from relkit.files.private_file import home_folder, is_private_folder

NAME = "history.sqlite"
_ROOTS = Path("/var/lib/relkit")
_MOUNTS = Path("/proc/self/mountinfo")
# SQLite's write-ahead log needs memory that all its users share: none on several hosts.
_SHARED_TYPES = re.compile(
    r"nfs\d?|autofs|cifs|smb\d?|smbfs|9p|afs|dvs|lustre|gpfs|beegfs|ceph|wekafs|panfs|pvfs2"
    # Of those that are programs, the containers' own is on a local disk; the others are servers'.
    r"|orangefs|ocfs2|gfs2|fuse\.(?!fuse-overlayfs$).*",
    re.IGNORECASE,
)
_ESCAPED = re.compile(r"\\([0-7]{3})")


class NoHistory(RelkitError):
    """The history cannot be read, or not be written; jobs go on without."""

    next_step = (
        "Jobs go on without it. Set XDG_STATE_HOME to a folder on a local disk, or --no-history."
    )


class HistoryBusy(NoHistory):
    """Another process has written for so long that this one gave up; later it may do."""


def history_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder: below XDG_STATE_HOME, else /var/lib/relkit for root, else below ~.

    Raises:
        NoHistory: this user has no home.
    """
    state = environ.get("XDG_STATE_HOME", "")
    if state.startswith("/"):
        return Path(state) / "relkit"
    if os.geteuid() == 0:
        return _ROOTS
    home = home_folder()
    if home is None:
        raise NoHistory("this user has no home folder for a history")
    return home / ".local" / "state" / "relkit"


def prepared_folder(folder: Path) -> Path:
    """The folder, made where it is missing, and fit for a database.

    Raises:
        NoHistory: it is on a file system of several hosts, cannot be made, or is not private.
    """
    # A look at it first: what is mounted on demand is no mount before.
    folder.exists()
    kind = type_of_mount(folder, _read_mounts())
    if _SHARED_TYPES.fullmatch(kind):
        raise NoHistory(f"{folder} is on {kind}, where SQLite's write-ahead log cannot be kept")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise NoHistory(f"{folder} cannot be made: {error.strerror}") from error
    if not is_private_folder(folder):
        raise NoHistory(f"{folder} belongs to another user, or others may read it")
    return folder


def type_of_mount(path: Path, mountinfo: str) -> str:
    """The type of the file system that a path is on; "" where that does not show.

    Args:
        mountinfo: the text of /proc/self/mountinfo.
    """
    real = os.path.realpath(path)
    best, kind = "", ""
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        fields, types = left.split(), right.split()
        if len(fields) < 5 or not types:
            continue
        mounted = _ESCAPED.sub(lambda match: chr(int(match[1], 8)), fields[4])
        is_above = real == mounted or real.startswith(mounted.rstrip("/") + "/")
        # The last of several mounts at one place hides the others.
        if is_above and len(mounted) >= len(best):
            best, kind = mounted, types[0]
    return kind


def _read_mounts() -> str:
    try:
        return _MOUNTS.read_text(errors="replace")
    except OSError:
        return ""
