"""The reports that this launcher leaves in its timeline folder: each one once."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from relkit.files.input_file import read_input
from relkit.text.foreign_json import parse_object

_FILES = (
    "report.json", "netcheck.json", "ttp.json", "flash_checkpoint.json", "straggler/report.json",
)  # fmt: skip
_MAX_BYTES = 16 << 20


class KeptReports:
    """Looks at file times only, until one has changed.

    Args:
        timeline: the folder.
    """

    def __init__(self, timeline: Path) -> None:
        self._timeline = timeline
        # What lies there before this launcher writes is of others.
        self._seen = {name: self._mark(name) for name in _FILES}

    def new(self) -> Iterator[Mapping[str, Any]]:
        """Reports that this launcher has written since the last call, as JSON."""
        for name in _FILES:
            mark = self._mark(name)
            if mark is None or mark == self._seen[name]:
                continue
            self._seen[name] = mark
            try:
                plain = parse_object(read_input(self._timeline / name, _MAX_BYTES))
            except (OSError, ValueError):
                continue
            meta = plain.get("meta")
            if not isinstance(meta, dict):
                continue
            # Several launchers may share the folder: each notes its own reports.
            if (meta.get("pid"), meta.get("host")) == (os.getpid(), os.uname().nodename):
                yield plain

    def _mark(self, name: str) -> tuple[int, int] | None:
        try:
            status = (self._timeline / name).stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_ino
