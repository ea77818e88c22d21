"""The environment and the folder that make a worker process record."""

from __future__ import annotations

import errno
import glob
import hashlib
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from relkit.errors import HookUnavailable, UnwritablePath, UsageProblem
from relkit.files.private_file import is_private_folder
from relkit.hook.locate import hook_library
from relkit.process.identity import own_identity

_JOB_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_NODE, _MAX_SHARED_NAME = ".node-", 80
_SHARED_MEMORY = Path("/dev/shm")

_SANITIZER, _ANY_ORDER = "ASAN_OPTIONS", "verify_asan_link_order=0"

# Of shared memory, which NCCL and data loaders need as well: a container may have 64 MiB in all.
_MAX_SHARE_OF_ALL, _MAX_SHARE_OF_FREE = 1 / 4, 1 / 2

# What one process's file takes, rounded up; the exact size is in its header.
PROCESS_BYTES = 3 << 19


def job_dir(job_id: str) -> Path:
    """Where a job's recorder files belong: a folder of this user's in shared memory.

    Args:
        job_id: letters, digits, "_", "-" and ".", at most 100, not starting with "-" or ".".

    Raises:
        UsageProblem: the job id cannot be a folder name.
    """
    return _folder(_SHARED_MEMORY, job_id)


def job_folders(job_id: str) -> tuple[Path, ...]:
    """The folders of a job that are on this host and that this user alone can have filled.

    Shared memory first, then the temporary folder (see `prepare_job_dir`); with those of nodes that
    have one of their own (see `node_job`).

    Raises:
        UsageProblem: the job id cannot be a folder name.
    """
    folders = [_folder(root, job_id) for root in _roots()]
    nodes = f"{glob.escape(job_id[:_MAX_SHARED_NAME])}{_NODE}{'[0-9a-f]' * 8}"
    folders += [each for folder in folders for each in sorted(folder.parent.glob(nodes))]
    return tuple(f for f in folders if is_private_folder(f.parent) and is_private_folder(f))


def node_job(job_id: str, node: str) -> str:
    """The name of the folder for one node's recorders, where a job has several nodes.

    Containers may share /dev/shm, have the same process ids, and see none of one another's.

    Args:
        job_id: as for job_dir; node: what the node is called.
    """
    of_node = hashlib.sha256(node.encode(errors="replace")).hexdigest()[:8]
    return f"{job_id[:_MAX_SHARED_NAME]}{_NODE}{of_node}"


def all_job_folders() -> tuple[Path, ...]:
    """The folders of all of this user's jobs on this host, as `job_folders`."""
    parents = {_folder(root, "any").parent for root in _roots()}
    return tuple(
        folder
        for parent in sorted(parents)
        if is_private_folder(parent)
        for folder in sorted(parent.iterdir())
        if is_private_folder(folder)
    )


def prepare_job_dir(job_id: str, processes: int) -> Path:
    """Make the job's folder, where there is really room for all its processes.

    Shared memory first; the temporary folder where that is closed, or where the files would take
    more than a quarter of it or half of what is free.

    Args:
        job_id: as for job_dir.
        processes: how many will record on this host, at least 1.

    Raises:
        UnwritablePath: neither place can hold the files.
        UsageProblem: the job id cannot be a folder name.
    """
    reasons = []
    for root in _roots():
        folder = _folder(root, job_id)
        try:
            size_bytes = max(1, processes) * PROCESS_BYTES
            _private(folder.parent)
            _private(folder)
            if root == _SHARED_MEMORY and size_bytes > recorders_share_bytes(folder):
                raise OSError(errno.ENOSPC, "too small for the recorders beside what others need")
            _really_allocate(folder, size_bytes)
        except OSError as error:
            reasons.append(f"{folder}: {error.strerror or error}")
            with suppress(OSError):
                folder.rmdir()
        else:
            return folder
    raise UnwritablePath(
        "no room for the recorder's files (" + "; ".join(reasons) + ")",
        next_step="Free space in /dev/shm, set TMPDIR to a folder that has some, or use --no-hook.",
    )


def recorders_share_bytes(shared_memory: Path) -> int:
    """How much of shared memory the recorders of a job may take.

    Raises:
        OSError: there is none.
    """
    room = os.statvfs(shared_memory)
    return recorders_share_of(room.f_blocks * room.f_frsize, room.f_bavail * room.f_frsize)


def recorders_share_of(total_bytes: int, free_bytes: int) -> int:
    """The same, of shared memory with that much in all and free."""
    return int(min(_MAX_SHARE_OF_ALL * total_bytes, _MAX_SHARE_OF_FREE * free_bytes))


def remove_job_dir(path: Path) -> None:
    """Remove a job's folder and what its processes left there; nothing where it is gone."""
    shutil.rmtree(path, ignore_errors=True)


def worker_environment(job_dir: Path, base: Mapping[str, str]) -> dict[str, str]:
    """The variables to add to a worker's environment so that it records, for this process to read.

    Args:
        job_dir: folder that prepare_job_dir made.
        base: the environment that the worker would get otherwise.

    Returns:
        The additions; none where `base` has RELKIT_HOOK_DISABLE=1.

    Raises:
        HookUnavailable: the library is not built, or its path cannot be preloaded.
    """
    if base.get("RELKIT_HOOK_DISABLE") == "1":
        return {}
    library = str(hook_library())
    if re.search(r"[ :]", library):
        raise HookUnavailable(
            f"LD_PRELOAD cannot name {library}: it splits at blanks and colons",
            next_step="Install relkit in a folder without them, or set RELKIT_HOOK_LIBRARY to a "
            "copy of the library in one.",
        )
    present = [entry for entry in re.split(r"[ :]+", base.get("LD_PRELOAD", "")) if entry]
    # Last: a sanitizer's library insists on being first, and our place does not matter.
    if library not in present:
        present.append(library)
    return {
        "LD_PRELOAD": ":".join(present),
        "RELKIT_HOOK_DIR": str(job_dir),
        "RELKIT_TRACER": own_identity().to_text(),
        **_sanitizer_options(base.get(_SANITIZER, "")),
    }


def _sanitizer_options(present: str) -> dict[str, str]:
    # A program that gcc has built with -fsanitize=address refuses to start where anything at all is
    # preloaded before its sanitizer, which is part of what the program is linked with.
    if _ANY_ORDER.partition("=")[0] in present:
        return {}
    return {_SANITIZER: f"{present}:{_ANY_ORDER}" if present else _ANY_ORDER}


def _roots() -> tuple[Path, Path]:
    return _SHARED_MEMORY, Path(tempfile.gettempdir())


def _folder(root: Path, job_id: str) -> Path:
    if not _JOB_ID.fullmatch(job_id):
        raise UsageProblem(
            f"job id {job_id!r} cannot be a folder name",
            next_step="Use letters, digits, '_', '-' and '.', at most 100 of them.",
        )
    return root / f"relkit-{os.geteuid()}" / job_id


def _private(folder: Path) -> None:
    # Anybody may create a folder of that name in shared memory before us: one that is not ours
    # alone is refused, as another user could read stacks from it or plant files in it.
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise PermissionError(13, "belongs to someone else")
    if status.st_mode & 0o077:
        folder.chmod(0o700)


def _really_allocate(folder: Path, size: int) -> None:
    descriptor, name = tempfile.mkstemp(dir=folder, prefix="space-")
    try:
        os.posix_fallocate(descriptor, 0, size)
    finally:
        os.close(descriptor)
        Path(name).unlink(missing_ok=True)
