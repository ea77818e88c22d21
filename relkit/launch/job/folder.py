"""The shared-memory folder of a job's recorders: made on demand, swept and removed at the end."""

from __future__ import annotations

import fcntl
import os
import sys
from pathlib import Path

from relkit.errors import RelkitError
from relkit.files.private_file import is_private_folder, open_private
from relkit.hook import environment
from relkit.hook.compatible import program_of, why_not_preloadable
from relkit.hook.locate import hook_library
from relkit.hook.owner import is_recorded, writer_lives
from relkit.launch.job.settings import Log
from relkit.log_lines import warning
from relkit.process.identity import ProcessFinder
from relkit.text.job_id import safe_job_id

LOCK = "launcher.lock"
_RECORDERS = "*.rkhook"
_LIMIT = "RELKIT_HOOK_FILES"


class JobFolder:
    """One launcher's hold on a job's folder; several launchers of one host may share it.

    Every launcher keeps a shared lock on a file in the folder. The kernel drops it with the
    process, however that ends, so that an unlocked folder is known to be left over.

    Args:
        use_hook: False for --no-hook.
        log: writes one line to the terminal.
        program: the command that will be preloaded.
        instead: what becomes of hangs without the hook.
    """

    def __init__(
        self,
        use_hook: bool,
        log: Log,
        program: str = sys.executable,
        instead: str = "hangs are not detected",
    ) -> None:
        self._use_hook, self._log, self._program = use_hook, log, program
        self._instead = instead
        self._folder: Path | None = None
        self._lock: int | None = None

    def prepare(
        self, job_id: str, processes: int, *, node: str = ""
    ) -> tuple[Path | None, dict[str, str]]:
        """The folder and the environment for workers; (None, {}) without the hook.

        Args:
            job_id: as the launcher knows it.
            processes: ranks on this node.
            node: what this node is called, where another one may share this host's /dev/shm.
        """
        if not self._use_hook or os.environ.get("RELKIT_HOOK_DISABLE") == "1":
            self._log(f"the hook is off: {self._instead}, failures are still explained")
            return None, {}
        try:
            why = why_not_preloadable(program_of(self._program), hook_library())
            if why:
                self._log(warning(f"the hook cannot be used, so {self._instead}: {why}"))
                return None, {}
            name = safe_job_id(job_id)
            name = environment.node_job(name, node) if node else name
            folder = self._claim(name, processes)
            extra = environment.worker_environment(folder, os.environ)
            sweep(folder.parent)
            _drop_ended(folder)
            extra.setdefault(_LIMIT, os.environ.get(_LIMIT) or str(max_recorders(processes)))
        except (RelkitError, OSError) as error:
            self._log(warning(f"the hook cannot be used, so {self._instead}: {error}"))
            return None, {}
        return folder, dict(extra)

    def _claim(self, name: str, processes: int) -> Path:
        folder = environment.prepare_job_dir(name, processes)
        if self._folder != folder:
            self._release()
            self._folder, self._lock = folder, _hold(folder, fcntl.LOCK_SH)
            if not (folder / LOCK).exists():
                # Swept away by another launcher between its making and our lock.
                environment.prepare_job_dir(name, processes)
                self._release()
                self._lock = _hold(folder, fcntl.LOCK_SH)
        return folder

    def remove(self) -> None:
        """Release the folder; the last launcher that uses it removes it."""
        if self._folder is not None:
            self._release()
            _remove_if_left(self._folder)

    def _release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def max_recorders(processes: int) -> int:
    """How many recorder files a folder may hold before those are refused that the launcher has not
    started itself (helpers that communicate, programs below a script).

    Args:
        processes: ranks on this node.
    """
    return 2 * processes + 8


def _hold(folder: Path, how: int) -> int | None:
    """A lock on the folder; None where another process has one that excludes it.

    Raises:
        OSError: the folder is gone, or not ours.
    """
    handle = open_private(folder / LOCK, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(handle, how | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    return handle


def _remove_if_left(folder: Path) -> None:
    """Remove a folder that no launcher holds and no live process records into."""
    try:
        lock = _hold(folder, fcntl.LOCK_EX)
    except OSError:
        return
    if lock is None:
        return
    try:
        if not is_recorded(folder):
            environment.remove_job_dir(folder)
    finally:
        os.close(lock)


def sweep(parent: Path) -> None:
    """Remove the folders that killed launchers left: shared memory is memory.

    Only folders with a lock file are looked at: others were not made here.
    """
    for folder in parent.iterdir():
        if is_private_folder(folder) and (folder / LOCK).is_file():
            _remove_if_left(folder)


def _drop_ended(folder: Path) -> None:
    """Remove the recorder files of an earlier attempt, whose processes are gone."""
    finder = ProcessFinder()
    for path in folder.glob(_RECORDERS):
        if not writer_lives(path, finder):
            path.unlink(missing_ok=True)
