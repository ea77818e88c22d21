"""The folder of slots in shared memory: a launcher's, or, where there is none, the process's own.

Whoever makes it holds a lock on a file in it. The kernel drops the lock with the process, however
that ends, so that an unlocked folder is known to be left over and is removed by the next one.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from relkit.errors import UnwritablePath
from relkit.flash_checkpoint.slot_format import Owner, job_mark
from relkit.job_id import safe_job_id
from relkit.private_file import is_private_folder, open_private

FOLDER_VARIABLE = "RELKIT_FLASH_CHECKPOINT_FOLDER"
LOCK = "owner.lock"
_SUFFIX = ".slots"
_SHARED_MEMORY = Path("/dev/shm")


@dataclass(slots=True)
class OwnFolder:
    """A folder that this process has made, and removes.

    Args:
        path: of it; lock: the descriptor that holds it; pid: of the process.
    """

    path: Path
    lock: int
    pid: int

    def remove(self) -> None:
        """Remove it with all slots. A forked child has the object too, and leaves it alone."""
        if os.getpid() == self.pid:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self.lock)


def _home() -> Path:
    return _SHARED_MEMORY / f"relkit-{os.geteuid()}-slots"


def make(job_id: str) -> OwnFolder:
    """A new folder for a job's slots; what killed owners left behind is removed first.

    Args:
        job_id: as the launcher knows it.

    Raises:
        UnwritablePath: shared memory is closed, or its folder is somebody else's.
    """
    home = _home()
    try:
        home.mkdir(mode=0o700, exist_ok=True)
        if not is_private_folder(home):
            raise PermissionError(13, "belongs to someone else, or is open to others")
        with _one_at_a_time(home):
            sweep(home)
            folder = Path(tempfile.mkdtemp(prefix=f"{safe_job_id(job_id)}-", dir=home))
            lock = open_private(folder / LOCK, os.O_RDWR | os.O_CREAT)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise UnwritablePath(
            f"no folder for checkpoints in memory: {home}: {error.strerror or error}",
            next_step="Checkpoints go to disk only. Free /dev/shm, or mount it writable.",
        ) from error
    return OwnFolder(folder, lock, os.getpid())


@contextmanager
def _one_at_a_time(home: Path) -> Iterator[None]:
    """Nobody sweeps while another makes a folder: it is without a lock for a moment."""
    handle = open_private(home / ".lock", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def sweep(home: Path) -> None:
    """Remove the folders whose owners are gone."""
    for folder in _folders(home):
        try:
            lock = open_private(folder / LOCK, os.O_RDWR)
        except OSError:
            continue  # being made now, or not made here
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        except BlockingIOError:
            continue
        finally:
            os.close(lock)


def folders_of(job_id: str) -> tuple[Path, ...]:
    """The folders of a job's slots on this host, of this user."""
    prefix = f"{safe_job_id(job_id)}-"
    named = (folder for folder in _folders(_home()) if folder.name.startswith(prefix))
    return tuple(folder for folder in named if "-" not in folder.name.removeprefix(prefix))


def _folders(home: Path) -> Iterator[Path]:
    with suppress(OSError):
        if is_private_folder(home):
            yield from (folder for folder in sorted(home.iterdir()) if is_private_folder(folder))


class RankLock:
    """One saver a rank: a job that a worker starts finds the same folder in its environment.

    The kernel releases it with the process; unlike flock, a data loader that outlives its rank does
    not hold it.

    Args:
        slots: the file of the rank's slots.

    Raises:
        UnwritablePath: another process, or another saver of this one, has it.
    """

    _held: ClassVar[set[Path]] = set()

    def __init__(self, slots: Path) -> None:
        self._path = slots.with_suffix(".lock")
        try:
            if self._path in self._held:
                raise BlockingIOError(11, "another saver of this process has it")
            self._descriptor = open_private(self._path, os.O_RDWR | os.O_CREAT)
            try:
                fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(self._descriptor)
                raise
        except OSError as error:
            raise UnwritablePath(
                f"{slots} is not this process's to save into: {error.strerror}",
                next_step="Have one checkpointer a process; a job inside a job needs a launcher of"
                " its own (`relkit launch`).",
            ) from error
        self._held.add(self._path)

    def release(self) -> None:
        """Let another one save."""
        self._held.discard(self._path)
        os.close(self._descriptor)


def of_launcher(environ: Mapping[str, str] = os.environ) -> Path | None:
    """The folder that the launcher of this process has made; None where there is none."""
    named = environ.get(FOLDER_VARIABLE, "")
    return Path(named) if named and is_private_folder(Path(named)) else None


def slots_path(folder: Path, rank: int) -> Path:
    """The file of a rank's slots."""
    return folder / f"rank-{rank}{_SUFFIX}"


def keep_only(folder: Path, ranks: Collection[int]) -> None:
    """Remove the slots of all other ranks."""
    kept = {slots_path(folder, rank) for rank in ranks}
    for path in folder.glob(f"rank-*{_SUFFIX}"):
        if path not in kept:
            path.unlink(missing_ok=True)


def owner(folder: Path, rank: int, world_size: int) -> Owner:
    """Whose the slots of a rank in a folder are: the folder stands for the job."""
    return Owner(rank, world_size, job_mark(folder.name))
