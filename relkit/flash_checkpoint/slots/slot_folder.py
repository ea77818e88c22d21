"""The folder of slots in shared memory: the launcher's, or the process's own without a launcher.

Its owner holds a lock on a file in it. The kernel releases the lock when the owner ends, however
that happens; a folder without a lock has lost its owner. The next owner of the same job takes it
over, if it is of use; those of other jobs remove it, after a while.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import ClassVar

from relkit.errors import UnwritablePath
from relkit.files.private_file import is_private_folder, open_private, read_private
from relkit.flash_checkpoint.slots.slot_format import Owner, job_mark
from relkit.text.job_id import safe_job_id

FOLDER_VARIABLE = "RELKIT_FLASH_CHECKPOINT_FOLDER"
LOCK = "owner.lock"
_SUFFIX = ".slots"
# When somebody first saw that a folder had lost its owner: its time of change.
_LEFT_MARK = "left"
# So long others leave it alone, as its job may come back; not so if less than this part of shared
# memory is free.
_LEFT_ALONE_S = 600.0
_OWNER_BYTES = 16
_FREE_PART = 0.5
_SHARED_MEMORY = Path("/dev/shm")
_LOCK_WAIT_S = 10.0
_LOCK_POLL_S = 0.05


class LeftFolder(Enum):
    """What becomes of a folder of the same job that has lost its owner."""

    TAKE = "take"
    LEAVE = "leave"
    REMOVE = "remove"


Judge = Callable[[Path], LeftFolder]


@dataclass(slots=True)
class OwnFolder:
    """A folder that this process holds and will remove.

    Args:
        path: of the folder; lock: descriptor that holds the lock; pid: of this process.
        is_taken: it was made by a process that has ended since.
    """

    path: Path
    lock: int
    pid: int
    is_taken: bool = False

    def remove(self) -> None:
        """Remove it with all slots; nothing in a forked child, which has this object too."""
        if os.getpid() == self.pid:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self.lock)


def _home() -> Path:
    return _SHARED_MEMORY / f"relkit-{os.geteuid()}-slots"


def _remove_all(_folder: Path) -> LeftFolder:
    return LeftFolder.REMOVE


def make(job_id: str, judge: Judge = _remove_all) -> OwnFolder:
    """Make a folder for a job's slots, or take one over; others without owners are removed first.

    Args:
        job_id: of the launcher.
        judge: what becomes of a folder of this job that has lost its owner.

    Raises:
        UnwritablePath: shared memory cannot be written, or the folder there is another user's.
    """
    home = _home()
    try:
        home.mkdir(mode=0o700, exist_ok=True)
        if not is_private_folder(home):
            raise PermissionError(13, "belongs to another user, or others may read it")
        with _one_at_a_time(home):
            taken = _go_through(home, folders_of(job_id), judge)
            if taken is not None:
                return taken
            folder = Path(tempfile.mkdtemp(prefix=f"{safe_job_id(job_id)}-", dir=home))
            lock = open_private(folder / LOCK, os.O_RDWR | os.O_CREAT)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _sign(lock)
    except OSError as error:
        raise UnwritablePath(
            f"no folder for checkpoints in memory: {home}: {error.strerror or error}",
            next_step="Checkpoints go to disk only. Make /dev/shm writable, or free some of it.",
        ) from error
    return OwnFolder(folder, lock, os.getpid())


@contextmanager
def _one_at_a_time(home: Path) -> Iterator[None]:
    """Keep others from sweeping: a new folder is without a lock for a moment."""
    handle = open_private(home / ".lock", os.O_RDWR | os.O_CREAT)
    try:
        end_s = time.monotonic() + _LOCK_WAIT_S
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                # Its holder may be stopped, or may be removing a large folder.
                if time.monotonic() >= end_s:
                    raise
            time.sleep(_LOCK_POLL_S)
        yield
    finally:
        os.close(handle)


def _go_through(home: Path, same_job: Collection[Path], judge: Judge) -> OwnFolder | None:
    """See what folders have lost their owners: take one over, leave or remove the others."""
    taken: OwnFolder | None = None
    for folder, lock in _without_owner(_folders(home)):
        fate = judge(folder) if folder in same_job else LeftFolder.LEAVE
        if fate is LeftFolder.TAKE and taken is None:
            (folder / _LEFT_MARK).unlink(missing_ok=True)
            _sign(lock)
            taken = OwnFolder(folder, os.dup(lock), os.getpid(), is_taken=True)
        elif fate is not LeftFolder.LEAVE or _is_stale(folder):
            shutil.rmtree(folder, ignore_errors=True)
    return taken


def _sign(lock: int) -> None:
    """Have a new owner in the file of the lock: a random text of always the same length."""
    os.pwrite(lock, secrets.token_hex(_OWNER_BYTES).encode("ascii"), 0)


def owner_of(folder: Path) -> str:
    """Which process holds a folder, as a text that no other one has; "" where it is not known."""
    try:
        return read_private(folder / LOCK, 2 * _OWNER_BYTES).decode("ascii")
    except (OSError, ValueError):
        return ""


def _is_stale(folder: Path) -> bool:
    """Whether a folder was left long ago, or takes up memory that others may need."""
    mark = folder / _LEFT_MARK
    with suppress(FileExistsError):
        os.close(open_private(mark, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    memory = os.statvfs(folder)
    is_short = memory.f_bavail < _FREE_PART * memory.f_blocks
    return is_short or time.time() - mark.stat().st_mtime > _LEFT_ALONE_S


def _without_owner(folders: Iterable[Path]) -> Iterator[tuple[Path, int]]:
    """Those that have lost their owners, each with a descriptor that holds its lock meanwhile."""
    for folder in folders:
        try:
            lock = open_private(folder / LOCK, os.O_RDWR)
        except OSError:
            continue  # is being made, or was not made by relkit
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield folder, lock
        except BlockingIOError:
            continue
        finally:
            os.close(lock)


def folders_of(job_id: str) -> tuple[Path, ...]:
    """The folders of a job's slots on this host, of this user."""
    prefix = f"{safe_job_id(job_id)}-"
    named = (folder for folder in _folders(_home()) if folder.name.startswith(prefix))
    return tuple(folder for folder in named if "-" not in folder.name.removeprefix(prefix))


def jobs_here() -> tuple[str, ...]:
    """The jobs of this user that have a folder on this host."""
    names = {folder.name.rpartition("-")[0] for folder in _folders(_home())}
    return tuple(sorted(names))


def _folders(home: Path) -> Iterator[Path]:
    with suppress(OSError):
        if is_private_folder(home):
            yield from (folder for folder in sorted(home.iterdir()) if is_private_folder(folder))


class RankLock:
    """Ensures that a rank has one saver: a job that a worker starts inherits the worker's folder.

    The kernel releases the lock with the process. Unlike flock, it is not inherited by a data
    loader that may outlive its rank.

    Args:
        slots: file of the rank's slots.

    Raises:
        UnwritablePath: another process, or another saver of this one, holds the lock.
    """

    _held: ClassVar[set[Path]] = set()

    def __init__(self, slots: Path) -> None:
        self._path = slots.with_suffix(".lock")
        try:
            if self._path in self._held:
                raise BlockingIOError(11, "another saver of this process holds the lock")
            self._descriptor = open_private(self._path, os.O_RDWR | os.O_CREAT)
            try:
                fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(self._descriptor)
                raise
        except OSError as error:
            raise UnwritablePath(
                f"{slots} is another checkpointer's: {error.strerror}",
                next_step="Make one checkpointer in each process; start a job inside a job with a"
                " launcher of its own (`relkit launch`).",
            ) from error
        self._held.add(self._path)

    def release(self) -> None:
        """Let another saver take over."""
        self._held.discard(self._path)
        os.close(self._descriptor)


def of_launcher(environ: Mapping[str, str] = os.environ) -> Path | None:
    """The folder of the launcher that started this process; None where there is none."""
    named = environ.get(FOLDER_VARIABLE, "")
    return Path(named) if named and is_private_folder(Path(named)) else None


def slots_path(folder: Path, rank: int) -> Path:
    """Path of a rank's file of slots."""
    return folder / f"rank-{rank}{_SUFFIX}"


def keep_only(folder: Path, ranks: Collection[int]) -> None:
    """Remove the slots of all other ranks."""
    kept = {slots_path(folder, rank) for rank in ranks}
    for path in folder.glob(f"rank-*{_SUFFIX}"):
        if path not in kept:
            path.unlink(missing_ok=True)


def owner(folder: Path, rank: int, world_size: int) -> Owner:
    """The owner of a rank's slots in a folder: the folder identifies the job."""
    return Owner(rank, world_size, job_mark(folder.name))
