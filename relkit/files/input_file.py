"""Opens files that somebody named, or that stand in a folder somebody named.

A pipe, a socket, a device or a folder of that name is refused at once: opening a pipe that nobody
writes to waits for ever, and so does reading a terminal. Links are followed; relkit's own private
files are opened by `relkit.files.private_file`, which follows none.
"""

from __future__ import annotations

import errno
import io
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


# Contents that are on no disk by themselves: of members of archives, and of packed files.
_held: ContextVar[Mapping[Path, bytes]] = ContextVar("held", default=MappingProxyType({}))


@contextmanager
def held_in_memory(contents: Mapping[Path, bytes]) -> Iterator[None]:
    """Within the block, `open_input` gives these contents under these paths.

    Args:
        contents: by path, whether there is a file of that name or not.
    """
    token = _held.set({**_held.get(), **contents})
    try:
        yield
    finally:
        _held.reset(token)


def is_held(path: Path) -> bool:
    """Whether the content of a path is held in memory."""
    return path in _held.get()


def size_of(stream: BinaryIO) -> int:
    """How many bytes a stream of `open_input` has."""
    if isinstance(stream, io.BytesIO):
        return stream.getbuffer().nbytes
    return os.fstat(stream.fileno()).st_size


def open_input(path: Path | str, buffering: int = -1) -> BinaryIO:
    """Open a regular file for reading, without ever waiting.

    Args:
        path: of the file; buffering: as of open().

    Raises:
        OSError: it cannot be opened, or is no regular file; `strerror` says what it is.
    """
    if (content := _held.get().get(Path(path))) is not None:
        return io.BytesIO(content)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except ValueError as error:  # a zero byte in the name
        raise OSError(errno.EINVAL, str(error), str(path)) from error
    try:
        _require_regular(os.fstat(descriptor).st_mode, path)
        return os.fdopen(descriptor, "rb", buffering)
    except BaseException:
        os.close(descriptor)
        raise


def require_regular(path: Path | str) -> int:
    """Refuse what `open_input` refuses, for files that a library opens by name.

    Returns:
        The size of the file, bytes.

    Raises:
        OSError: as `open_input`.
    """
    with open_input(path, 0) as stream:
        return size_of(stream)


def read_input(path: Path | str, limit_bytes: int) -> bytes:
    """The whole content of a regular file.

    Args:
        path: of the file; limit_bytes: a larger one is refused.

    Raises:
        OSError: as `open_input`; EFBIG where it is larger.
    """
    with open_input(path, 0) as stream:
        data = bytearray()
        # Files of /proc have size 0, and some give their content in pieces.
        while piece := stream.read(min(limit_bytes + 1 - len(data), 1 << 24)):
            data += piece
            if len(data) > limit_bytes:
                raise OSError(errno.EFBIG, f"larger than {limit_bytes} bytes", str(path))
    return bytes(data)


def read_input_text(path: Path | str, limit_bytes: int) -> str:
    """The whole content of a regular file of UTF-8 text.

    Raises:
        OSError: as `read_input`; UnicodeDecodeError: it is no UTF-8.
    """
    return read_input(path, limit_bytes).decode("utf-8")


def _require_regular(mode: int, path: Path | str) -> None:
    if not stat.S_ISREG(mode):
        kind = next((name for is_kind, name in _KINDS if is_kind(mode)), "something else")
        raise OSError(errno.EINVAL, f"it is {kind}, not a regular file", str(path))
