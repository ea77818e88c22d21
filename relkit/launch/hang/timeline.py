"""The timeline folder: which one to use, and where the files of an older incident go."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from relkit.errors import RelkitError
from relkit.files import usual_timeline
from relkit.files.input_file import read_input_text
from relkit.files.private_file import home_folder, open_own_folder
from relkit.stacks.dumpfile import read_dump, write_dump
from relkit.stacks.folder import PREVIOUS
from relkit.stacks.model import RankDump
from relkit.text.foreign_json import parse_json
from relkit.text.job_id import safe_job_id

# What relkit itself writes there; nothing else in the folder is ever moved.
OWN_FILES = (
    "py_stack",
    "py_stack.svg",
    "cpp_stack",
    "cpp_stack.svg",
    "mixed_stack",
    "mixed_stack.svg",
    "stack_graph.dot",
    "report.json",
    "report.html",
    "actions.jsonl",
)
_DUMP = re.compile(r"\d{5,}-\d{5,}\.stacktrace")
_REPORT_LIMIT_BYTES = 64 << 20


def default_folder() -> Path:
    """The first of the usual ones that files can be made in."""
    return usual_timeline.default_folder(_writable)


def _home_timeline() -> Path | None:
    home = home_folder()
    return None if home is None else home / "timeline"


def _writable(folder: Path) -> bool:
    """Files can be made in the folder, which is created (private) if need be."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".relkit-"):
            return True
    except OSError:
        return False


def choose_folder(asked: Path) -> tuple[Path, str]:
    """The folder to write to, and a sentence where it is not the one that was asked for."""
    if _writable(asked):
        return asked, ""
    home = _home_timeline()
    if home is not None and home != asked and _writable(home):
        return home, f"cannot write to {asked}; the timeline goes to {home}"
    # mkdtemp: a fixed name in a shared /tmp could have been prepared by somebody else.
    private = Path(tempfile.mkdtemp(prefix=f"relkit-timeline-{os.getuid()}-"))
    return private, f"cannot write to {asked}; the timeline goes to {private}"


def _old_job_id(folder: Path) -> str:
    try:
        plain = parse_json(read_input_text(folder / "report.json", _REPORT_LIMIT_BYTES))
        return safe_job_id(str(plain["job_id"]))
    except (OSError, ValueError, KeyError, TypeError):
        # A following node has no report of its own, only its ranks' dumps.
        pass
    for path in sorted(folder.glob("*.stacktrace")):
        try:
            return safe_job_id(read_dump(path).job_id or "unknown")
        except (RelkitError, OSError):
            continue
    return "unknown"


def rotate(folder: Path) -> Path | None:
    """Move an earlier incident's files into `previous-<job id>`, so that none is mixed in.

    In a folder that others may write to, `previous-<job id>` may be a link that somebody made, or
    somebody else's folder: nothing in it is touched, and the files go to another one.

    Returns:
        where they are now; None where there were none.

    Raises:
        OSError: the folder cannot be read, or nothing can be made in it.
    """
    if not _own_names(path.name for path in folder.iterdir()):
        return None
    source = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        target, descriptor = _previous(folder)
        try:
            for name in _own_names(os.listdir(descriptor)):  # noqa: PTH208 (a descriptor)
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=descriptor)
            for name in _own_names(os.listdir(source)):  # noqa: PTH208
                # Somebody else's file of such a name in a sticky folder stays where it is.
                with contextlib.suppress(FileNotFoundError, PermissionError):
                    os.rename(name, name, src_dir_fd=source, dst_dir_fd=descriptor)
        finally:
            os.close(descriptor)
    finally:
        os.close(source)
    return target


def _own_names(names: Iterable[str]) -> list[str]:
    return [name for name in names if name in OWN_FILES or _DUMP.fullmatch(name)]


def _previous(folder: Path) -> tuple[Path, int]:
    """The folder for an earlier incident's files, and its descriptor."""
    target = folder / f"{PREVIOUS}{_old_job_id(folder)}"
    try:
        return target, open_own_folder(target)
    except OSError:
        target = Path(tempfile.mkdtemp(prefix=f"{target.name}-", dir=folder))
        return target, open_own_folder(target)


def write_dumps(folder: Path, dumps: Sequence[RankDump]) -> None:
    """One .stacktrace file a rank.

    Raises:
        UnwritablePath: the folder is gone, read-only or full.
    """
    for dump in dumps:
        write_dump(folder, dump)
