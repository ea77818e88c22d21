"""A checkpointer of states that consist of a framework's own files."""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from relkit.checkpoint.manifest import FileRecord
from relkit.flash_checkpoint.folder_checkpointer import FolderCheckpointer
from relkit.flash_checkpoint.on_disk import iteration_files
from relkit.flash_checkpoint.on_disk.native_objects import own_member


class FilesCheckpointer(FolderCheckpointer, ABC):
    """Writes the files of a state to disk as the framework would; see `iteration_files`."""

    def _part_of_rank(self, state_dict: dict[str, Any]) -> dict[str, Any]:
        return state_dict

    def _write_files(self, state: dict[str, Any], folder: Path) -> Sequence[FileRecord]:
        return iteration_files.write_files(state, folder, self._ranks.rank, own_member)
