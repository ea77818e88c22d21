"""Where launchers leave their journals: a folder a job, in shared memory, of this user alone.

Writing there never waits for a disk, and what is left there outlives the job, not the host.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from relkit.files.private_file import is_private_folder
from relkit.process import procfs
from relkit.process.identity import ProcessFinder, ProcessIdentity, own_identity
from relkit.text.job_id import safe_job_id

SUFFIX, NOW_SUFFIX = ".journal", ".now"
# Folders of ended jobs beyond these are removed, oldest first.
MAX_JOBS = 64
# Launchers of one job and host, of runs that have ended, whose journals are kept.
MAX_ENDED = 32
_SHARED_MEMORY = Path("/dev/shm")
# The PID namespace is named where it is a container's: it may share /dev/shm with others.
_NAME = re.compile(r"([1-9][0-9]{0,9})-([0-9]{1,20})(?:-([0-9]{1,20}))?\.journal")


@dataclass(frozen=True, slots=True)
class JournalFile:
    """A journal on this host.

    Args:
        path: of the file; launcher: that writes it.
    """

    path: Path
    launcher: ProcessIdentity

    @property
    def is_live(self) -> bool:
        """Its launcher still runs, or may run where it cannot be seen from here."""
        number = ProcessFinder().number_of(self.launcher)
        if number is None:
            return not procfs.has_kernels_pids()
        return procfs.is_same_process(number, self.launcher.start_ticks)

    @property
    def changed_s(self) -> float:
        """When it was changed last, Unix time; 0 where it is gone."""
        return _changed_s(self.path)


def _changed_s(path: Path) -> float:
    with suppress(OSError):
        return path.stat().st_mtime
    return 0.0


def shared_memory() -> Path:
    """Where the journals of all users are."""
    return _SHARED_MEMORY


def _home() -> Path:
    return _SHARED_MEMORY / f"relkit-{os.geteuid()}-jobs"


def make(job_id: str) -> Path:
    """Where this process is to keep its journal of a job; what is too old is removed.

    Raises:
        OSError: shared memory cannot be written, or the folder there is another user's.
    """
    home = _home()
    folder = home / safe_job_id(job_id)
    for each in (home, folder):
        each.mkdir(mode=0o700, exist_ok=True)
        if not is_private_folder(each):
            raise PermissionError(13, "belongs to another user, or others may read it", str(each))
    # The newest now, for launchers of other jobs that sweep before the journal is there.
    os.utime(folder)
    _sweep(folder)
    me = own_identity()
    inside = "" if procfs.has_kernels_pids() else f"-{me.namespace}"
    return folder / f"{me.pid}-{me.start_ticks}{inside}{SUFFIX}"


def _sweep(mine: Path) -> None:
    ended = sorted(
        (each for each in journals_in(mine) if not each.is_live),
        key=lambda each: each.changed_s,
        reverse=True,
    )
    for each in ended[MAX_ENDED:]:
        with suppress(OSError):
            each.path.with_suffix(NOW_SUFFIX).unlink(missing_ok=True)
            each.path.unlink()
    folders = {}
    for folder in _folders():
        files = journals_in(folder)
        if folder != mine and not any(each.is_live for each in files):
            folders[folder] = max(map(_changed_s, (folder, *(each.path for each in files))))
    for folder in sorted(folders, key=lambda each: folders[each], reverse=True)[MAX_JOBS:]:
        shutil.rmtree(folder, ignore_errors=True)


def _launcher(pid: str, start_ticks: str, namespace: str | None) -> ProcessIdentity:
    return ProcessIdentity(int(pid), int(start_ticks), int(namespace or procfs.FIRST_PID_NAMESPACE))


def journals_in(folder: Path) -> tuple[JournalFile, ...]:
    """The journals of a job's folder, in no order."""
    with suppress(OSError):
        return tuple(
            JournalFile(path, _launcher(*match.groups()))
            for path in folder.iterdir()
            if (match := _NAME.fullmatch(path.name))
        )
    return ()


def journals_of(job_id: str) -> tuple[JournalFile, ...]:
    """The journals of a job on this host, of this user."""
    folder = _home() / safe_job_id(job_id)
    if not (is_private_folder(folder.parent) and is_private_folder(folder)):
        return ()
    return journals_in(folder)


def jobs_here() -> tuple[str, ...]:
    """The jobs of this user that have a journal on this host."""
    return tuple(folder.name for folder in _folders() if journals_in(folder))


def _folders() -> Iterator[Path]:
    home = _home()
    with suppress(OSError):
        if is_private_folder(home):
            yield from (folder for folder in sorted(home.iterdir()) if is_private_folder(folder))
