"""The files that somebody named, one by one or by a folder that they are in."""

from __future__ import annotations

import os
from pathlib import Path

from relkit.errors import UsageProblem
from relkit.files.input_file import is_held

MAX_FILES = 200_000
# What no job leaves behind.
_SKIPPED_FOLDERS = frozenset((".git", "__pycache__", "node_modules", ".venv"))


def files_below(path: Path, max_files: int | None = None) -> list[Path]:
    """The file of that name, or all files in a folder and below it, in the order of their names.

    Args:
        path: of a file or a folder.
        max_files: a folder with more is refused; MAX_FILES where left out.

    Raises:
        UsageProblem: there is no such path, or the folder holds too many files.
    """
    if is_held(path):
        return [path]
    if not path.is_dir():
        if not path.exists():
            raise UsageProblem(
                f"there is no {path}", next_step="Name a file, or a folder that holds some."
            )
        return [path]
    most = MAX_FILES if max_files is None else max_files
    files: list[Path] = []
    for folder, below, names in os.walk(path):
        below[:] = sorted(set(below) - _SKIPPED_FOLDERS)
        files += [Path(folder) / name for name in sorted(names)]
        if len(files) > most:
            raise UsageProblem(
                f"{path} holds more than {most} files",
                next_step="Name the folder in which only the job's own files are.",
            )
    return files
