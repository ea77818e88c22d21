"""What a file is by how it begins: a dump, stacks or a log."""

from __future__ import annotations

import re
from enum import Enum
from pathlib import Path

from relkit.files.input_file import open_input
from relkit.flight_recorder.text_lines import is_log_of_objects

_HEAD_BYTES = 4096
_PICKLE = b"\x80"
_COMPRESSED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PK\x03\x04", b"BZh", b"\xfd7zXZ")
_SPY = re.compile(rb"\s*\[\s*\{")


class FileKind(str, Enum):
    """What a file seems to be."""

    EMPTY = "empty"
    DUMP = "dump"
    SPY_JSON = "py-spy's JSON"
    COMPRESSED = "compressed"
    TEXT = "text"
    UNREADABLE = "unreadable"


def kind_of(path: Path) -> FileKind:
    """What a file seems to be, by its first bytes."""
    try:
        with open_input(path, 0) as stream:
            head = stream.read(_HEAD_BYTES)
    except OSError:
        return FileKind.UNREADABLE
    if not head:
        return FileKind.EMPTY
    if head.startswith(_COMPRESSED):
        return FileKind.COMPRESSED
    if head.startswith(_PICKLE):
        return FileKind.DUMP
    if head.lstrip().startswith(b"{") and not is_log_of_objects(head):
        return FileKind.DUMP
    return FileKind.SPY_JSON if _SPY.match(head) else FileKind.TEXT
