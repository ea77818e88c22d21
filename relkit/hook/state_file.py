"""One recorder file, opened for reading: header checks, and copies of its tables."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from relkit.errors import BadDump
from relkit.files.private_file import open_private
from relkit.hook import layout

Rows = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class StateFile:
    """An open recorder file whose header makes sense.

    Args:
        descriptor: read-only file descriptor.
        name: file name, for messages.
        header: a copy of the header at the time of opening.
    """

    descriptor: int
    name: str
    header: np.void

    def rows(self, offset: int, kind: np.dtype[Any], count: int) -> Rows:
        """A copy of `count` rows at `offset` bytes.

        Raises:
            BadDump: the file ends before them.
        """
        return np.frombuffer(_read(self.descriptor, self.name, kind.itemsize * count, offset), kind)

    def word(self, offset: int, kind: str = "<u8") -> int:
        """One number at `offset` bytes, as it is now."""
        return int(self.rows(offset, np.dtype(kind), 1)[0])

    def events(self, first: int, count: int) -> Rows:
        """A copy of `count` rows of the ring of events, from event number `first` on.

        Some may be half-written, or overwritten by newer ones: their tickets say so.

        Raises:
            BadDump: the file ends before them.
        """
        events_at, length = int(self.header["events_at"]), int(self.header["event_count"])
        place = first % length
        head = min(count, length - place)
        parts = [self.rows(events_at + place * layout.EVENT.itemsize, layout.EVENT, head)]
        if count > head:
            parts.append(self.rows(events_at, layout.EVENT, count - head))
        return np.concatenate(parts)


def _read(descriptor: int, name: str, size: int, offset: int) -> bytes:
    # pread and not mmap: a file that is cut short under a mapping kills the reader with SIGBUS.
    data = os.pread(descriptor, size, offset)
    if len(data) != size:
        raise BadDump(f"{name}: recorder file is truncated at {offset + len(data)} bytes")
    return data


def read_header(descriptor: int, name: str) -> np.void:
    """A copy of the header.

    Raises:
        BadDump: the file is shorter than a header.
    """
    header: np.void = np.frombuffer(
        _read(descriptor, name, layout.HEADER.itemsize, 0), layout.HEADER
    )[0]
    return header


def check(header: np.void, file_bytes: int, name: str) -> None:
    """Refuse what is not a recorder file of this version.

    Raises:
        BadDump: says why.
    """
    if bytes(header["magic"]) != layout.MAGIC or int(header["endian"]) != layout.ENDIAN:
        raise BadDump(f"{name}: not a recorder file of relkit's hook")
    if int(header["version"]) != layout.VERSION:
        raise BadDump(
            f"{name}: written by a hook of layout version {int(header['version'])}, "
            f"this relkit reads {layout.VERSION}",
            next_step="Use the same relkit to launch and to look.",
        )
    for field, expected in layout.NUMPY_SIZES.items():
        if int(header[field]) != expected:
            raise BadDump(f"{name}: {field} is {int(header[field])} instead of {expected}")
    tables = (
        ("hooks_at", "hook_count", layout.HOOK.itemsize),
        ("communicators_at", "communicator_count", layout.COMMUNICATOR.itemsize),
        ("slots_at", "slot_count", layout.SLOT.itemsize),
        ("captures_at", "capture_count", layout.CAPTURE.itemsize),
        ("events_at", "event_count", layout.EVENT.itemsize),
        ("peers_at", "peer_count", layout.PEER.itemsize),
    )
    if int(header["file_bytes"]) > min(file_bytes, layout.MAX_FILE_BYTES):
        raise BadDump(f"{name}: recorder file is truncated at {file_bytes} bytes")
    for start, count, row in tables:
        if int(header[start]) + int(header[count]) * row > int(header["file_bytes"]):
            raise BadDump(f"{name}: {count} reaches beyond the end of the file")
    if not int(header["ready"]):
        raise BadDump(
            f"{name}: the process is just starting to record", next_step="Look again in a moment."
        )


@contextmanager
def open_state_file(path: Path) -> Iterator[StateFile]:
    """Open a recorder file for reading.

    Raises:
        BadDump: not a recorder file, or truncated, or of another version, or unreadable.
    """
    try:
        descriptor = open_private(path)
    except OSError as error:
        raise BadDump(f"{path.name}: {error.strerror}") from error
    try:
        size = os.fstat(descriptor).st_size
        header = read_header(descriptor, path.name)
        check(header, size, path.name)
        yield StateFile(descriptor, path.name, header)
    except OSError as error:
        raise BadDump(f"{path.name}: {error.strerror}") from error
    finally:
        os.close(descriptor)
