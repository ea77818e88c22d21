"""An iteration folder that is there whole or not at all, with a manifest of what is in it.

Files go into `iter_0000010_tmp`, each fsynced; a manifest with their checksums is written beside
them; the folder is renamed to `iter_0000010`; the tracker, which names the iteration to resume
from, is replaced last. Whatever fails or is killed before that leaves the previous checkpoint as it
was. Every rank calls `write_file`; one rank calls `begin`, `commit` and `abandon`. No torch here.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, cast

from relkit.checkpoint.atomic_swap import exchange
from relkit.checkpoint.manifest import MANIFEST, FileRecord, Manifest, read_manifest
from relkit.errors import BadInputFile, UnwritablePath
from relkit.files.input_file import open_input
from relkit.text.whole_number import whole_number

TRACKER = "latest_checkpointed_iteration.txt"
# How an error ends where this user may not read a file, which says nothing of the file.
DENIED = os.strerror(errno.EACCES)
TEMPORARY = "_tmp"
# The folder of a model that Megatron publishes; the tracker names it.
RELEASE = "release"
_NEXT_STEP = "Free some space or name another folder; the previous checkpoint is as it was."


class _Digesting:
    """A file that knows the checksum of what was written, and why a write failed.

    torch.save writes through C++, which turns an OSError into something else.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self.stream = stream
        self.sha256 = hashlib.sha256()
        self.size_bytes = 0
        self.failure: OSError | None = None

    def write(self, data: bytes) -> int:
        try:
            self.stream.write(data)
        except OSError as error:
            self.failure = error
            raise
        self.sha256.update(data)
        written = memoryview(data).nbytes
        self.size_bytes += written
        return written

    def flush(self) -> None:
        self.stream.flush()


def iteration_name(step: int) -> str:
    """Name of an iteration's folder, as Megatron spells it."""
    return f"iter_{step:07d}"


def begin(root: Path, step: int) -> Path:
    """Make the empty temporary folder of an iteration; what an earlier attempt left is removed.

    Raises:
        UnwritablePath: the folder cannot be made.
    """
    folder = root / (iteration_name(step) + TEMPORARY)
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        abandon(folder)
        folder.mkdir(mode=0o700)
        sync_folder(root)
    except OSError as error:
        raise _unwritable(folder, error) from error
    return folder


def write_file(folder: Path, name: str, write: Callable[[BinaryIO], object]) -> FileRecord:
    """Write one file of an iteration durably, and say what was written.

    Args:
        folder: from `begin`.
        name: within the folder, with / between its parts; missing folders are made.
        write: writes the content, front to back, into the stream that it is given.

    Raises:
        UnwritablePath: the disk is full, a quota is used up, or the folder is not writable.
    """
    path = folder / name
    digesting: _Digesting | None = None
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as stream:
            digesting = _Digesting(stream)
            write(cast(BinaryIO, digesting))
            stream.flush()
            os.fsync(stream.fileno())
        sync_folder(path.parent)
    except (OSError, RuntimeError) as error:
        cause = digesting.failure if digesting and digesting.failure else error
        if not isinstance(cause, OSError):
            raise
        raise _unwritable(path, cause) from error
    return FileRecord(name, digesting.size_bytes, digesting.sha256.hexdigest())


def commit(
    folder: Path, step: int, records: Iterable[FileRecord], facts: Mapping[str, Any]
) -> Path:
    """Make a temporary folder the iteration to resume from.

    Args:
        folder: from `begin`.
        step: of the iteration.
        records: of every file that any rank wrote.
        facts: plain JSON about the run, kept in the manifest.

    Returns:
        The iteration's folder.

    Raises:
        UnwritablePath: a file is not there as it was written (a folder that the ranks do not
            share), or the disk is full.
    """
    root, final = folder.parent, folder.parent / iteration_name(step)
    files = tuple(sorted(records, key=lambda record: record.name))
    for record in files:
        path = folder / record.name
        size = path.stat().st_size if path.exists() else -1
        if size != record.size_bytes:
            raise UnwritablePath(
                f"{path} was written with {record.size_bytes} bytes, and here it"
                f" {'is missing' if size < 0 else f'has {size}'}",
                next_step="Save to a folder that all ranks share.",
            )
    write_file(folder, MANIFEST, lambda out: out.write(Manifest(step, files, facts).encode()))
    # The tracker's next content is on the disk before anything is renamed: from here on, nothing
    # needs space.
    pending = root / f".{TRACKER}{TEMPORARY}"
    try:
        pending.unlink(missing_ok=True)
        write_file(root, pending.name, lambda out: out.write(str(step).encode()))
        sync_folder(folder)
        if final.exists():
            exchange(folder, final)
        else:
            folder.rename(final)
        sync_folder(root)
        pending.replace(root / TRACKER)
        sync_folder(root)
    except OSError as error:
        raise _unwritable(final, error) from error
    finally:
        pending.unlink(missing_ok=True)
    abandon(folder)  # the iteration of the same step that was there before
    return final


def abandon(folder: Path) -> None:
    """Remove a temporary folder, whatever is in it; nothing if there is none."""
    if folder.exists():
        shutil.rmtree(folder)


def prune(root: Path, keep: int, step: int) -> tuple[int, ...]:
    """Remove the oldest iterations up to `step`, so that `keep` of them are left.

    Only folders with a manifest are counted and removed: others are not ours. Later steps, which a
    run that went back may have left, stay.

    Returns:
        The steps that were removed.
    """
    ours = [
        number
        for number in iterations(root)
        if number <= step and (root / iteration_name(number) / MANIFEST).is_file()
    ]
    surplus = tuple(ours[: max(0, len(ours) - max(keep, 1))])
    for number in surplus:
        folder = root / iteration_name(number)
        doomed = folder.with_name(folder.name + TEMPORARY)
        try:
            abandon(doomed)
            # Renamed first: a removal that is killed halfway leaves nothing that looks whole.
            folder.rename(doomed)
            abandon(doomed)
        except OSError as error:
            raise _unwritable(folder, error) from error
    return surplus


def iterations(root: Path) -> tuple[int, ...]:
    """Steps that have a folder under its final name, ascending."""
    suffixes = (path.name.removeprefix("iter_") for path in root.glob("iter_*") if path.is_dir())
    steps = (whole_number(suffix) for suffix in suffixes)
    return tuple(sorted(step for step in steps if step is not None))


def latest(root: Path) -> int | None:
    """The step that the tracker names; None where there is no tracker, so nothing was saved.

    Raises:
        BadInputFile: it names no step.
    """
    path = root / TRACKER
    try:
        with open_input(path) as stream:
            text = stream.read(100).decode("utf-8", "replace").strip()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadInputFile(f"cannot read {path}: {error.strerror}") from error
    step = whole_number(text)
    if step is None:
        raise BadInputFile(
            f"{path} says {text!r}, which is no step",
            next_step=f"Write into it one of {_steps(root)}.",
        )
    return step


def is_release(root: Path) -> bool:
    """Whether the tracker names a published model, weights alone, in place of an iteration."""
    try:
        with open_input(root / TRACKER) as stream:
            return stream.read(100).strip() == RELEASE.encode()
    except OSError:
        return False


def existing(root: Path, step: int) -> Path:
    """The folder of an iteration.

    Raises:
        BadInputFile: there is none.
    """
    folder = root / iteration_name(step)
    if not folder.is_dir():
        raise BadInputFile(
            f"{folder} is not there, and {root / TRACKER} or --load names it",
            next_step=f"Resume from one of {_steps(root)}: write its number into the tracker.",
        )
    return folder


def _steps(root: Path) -> str:
    return ", ".join(str(step) for step in iterations(root)) or "none"


def half_written(root: Path) -> tuple[Path, ...]:
    """Temporary folders that a killed save left behind."""
    return tuple(sorted(path for path in root.glob(f"iter_*{TEMPORARY}") if path.is_dir()))


def problems(folder: Path, *, only: Iterable[str] | None = None) -> tuple[tuple[str, str], ...]:
    """Hold the files of an iteration against its manifest.

    Args:
        folder: of the iteration.
        only: names to look at; None: all.

    Returns:
        (name, what is wrong with it), empty where all is well.

    Raises:
        BadInputFile: the manifest is missing or is none.
    """
    wanted = None if only is None else set(only)
    records = {record.name: record for record in read_manifest(folder).files}
    differing: list[tuple[str, str]] = []
    for name in sorted(records if wanted is None else wanted):
        record = records.get(name)
        if record is None:
            differing.append((name, "is not in the manifest"))
        elif wrong := _compare(folder / name, record):
            differing.append((name, wrong))
    return tuple(differing)


def _compare(path: Path, record: FileRecord) -> str:
    digest = hashlib.sha256()
    try:
        with open_input(path) as stream:
            size = os.fstat(stream.fileno()).st_size
            if size != record.size_bytes:
                return f"has {size} bytes, and was written with {record.size_bytes}"
            while block := stream.read(1 << 22):
                digest.update(block)
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    if digest.hexdigest() != record.sha256:
        return "has another content than was written (sha256)"
    return ""


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _unwritable(path: Path, error: OSError) -> UnwritablePath:
    return UnwritablePath(f"cannot write {path}: {error.strerror}", next_step=_NEXT_STEP)
