"""A node's end of `relkit hang collect`: which files of a hang lie here, and what is in them.

A node with a timeline folder of its own has its files in it; where several share one, they may be
in `node-NODE` folders. What an earlier incident left (`previous-JOB`) is not evidence of this one.
"""

from __future__ import annotations

import base64
import contextlib
import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from relkit.errors import RelkitError
from relkit.files.usual_timeline import usual_folders
from relkit.fleet.agent import Handler, Request
from relkit.text.printable import printable_line

LIST, READ = "hang-files", "hang-read"
FILES_A_PAGE = 4000
CHUNK_BYTES = 256 << 10
MAX_FILE_BYTES = 64 << 20
REPORT = "report.json"
# What the launcher did about it.
ACTIONS = "actions.jsonl"
# What both ends agree to: nothing else is offered, asked for or believed.
_FILE = r"(?:report\.json|actions\.jsonl|[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}stacktrace)"
_NODE = r"node-[A-Za-z0-9_.-]{1,100}"
PATH = re.compile(rf"(?:{_NODE}/)?{_FILE}", re.ASCII)
_NODE_FOLDER = re.compile(_NODE, re.ASCII)
_AS_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_AS_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


class NoEvidence(RelkitError):
    """A node has no timeline folder, or cannot read it."""

    next_step = "Name the folder of the launch with --timeline-path."


def handlers() -> dict[str, Handler]:
    """The operations of an agent: to list the evidence, and to read it."""
    return {LIST: _list, READ: _read}


def _list(request: Request) -> Iterator[Mapping[str, Any]]:
    """One page of the files, those that come after the path `after`."""
    folder = _folder(str(request.fields.get("folder", "")))
    after = str(request.fields.get("after", ""))
    try:
        with _opened(folder) as descriptor:
            rows = sorted(row for row in _rows(descriptor) if row[0] > after)
    except OSError as error:
        raise NoEvidence(f"{folder}: {error.strerror}") from error
    yield {
        "folder": str(folder),
        "files": rows[:FILES_A_PAGE],
        "more": len(rows) > FILES_A_PAGE,
    }


def _read(request: Request) -> Iterator[Mapping[str, Any]]:
    """A part of one file, from `offset` on."""
    path, offset = str(request.fields["path"]), int(request.fields["offset"])
    if not PATH.fullmatch(path):
        raise NoEvidence(f"{printable_line(path)[:100]} is no file of a hang")
    folder = Path(str(request.fields["folder"]))
    node, _, name = path.rpartition("/")
    with contextlib.ExitStack() as stack:
        descriptor = stack.enter_context(_opened(folder))
        if node:
            descriptor = stack.enter_context(_opened(node, descriptor))
        handle = os.open(name, _AS_FILE, dir_fd=descriptor)
        stack.callback(os.close, handle)
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise NoEvidence(f"{path} is not a regular file")
        data = os.pread(handle, CHUNK_BYTES, offset)
    yield {"data": base64.b64encode(data).decode("ascii")}


def _folder(asked: str) -> Path:
    """The timeline folder: the one asked for, else where a launcher puts it by itself."""
    if asked:
        return Path(asked)
    usual = usual_folders()
    there = [folder for folder in usual if os.access(folder, os.R_OK | os.X_OK)]
    if not there:
        places = " or ".join(str(folder) for folder in usual)
        raise NoEvidence(f"there is no timeline folder in {places}")
    return next((folder for folder in there if _holds_evidence(folder)), there[0])


def _holds_evidence(folder: Path) -> bool:
    with contextlib.suppress(OSError), _opened(folder) as descriptor:
        return next(_rows(descriptor), None) is not None
    return False


@contextlib.contextmanager
def _opened(folder: Path | str, inside: int | None = None) -> Iterator[int]:
    """A descriptor of a folder; inside another one, a link is not followed."""
    flags = _AS_FOLDER if inside is None else _AS_FOLDER | os.O_NOFOLLOW
    descriptor = os.open(folder, flags, dir_fd=inside)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _rows(descriptor: int, prefix: str = "") -> Iterator[tuple[str, int, int]]:
    """Path, size in bytes, and time of the last change in ns, of each file; never of a link."""
    with os.scandir(descriptor) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if not prefix and _NODE_FOLDER.fullmatch(entry.name):
                    with contextlib.suppress(OSError), _opened(entry.name, descriptor) as node:
                        yield from _rows(node, f"{entry.name}/")
            elif entry.is_file(follow_symlinks=False) and PATH.fullmatch(entry.name):
                with contextlib.suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    yield f"{prefix}{entry.name}", status.st_size, status.st_mtime_ns
