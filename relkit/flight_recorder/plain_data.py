"""A dump file -> dicts, lists, text and numbers. Whatever else a pickle asks for is refused."""

from __future__ import annotations

import io
import pickle
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from relkit.errors import RelkitError
from relkit.files.input_file import read_input
from relkit.text.foreign_json import parse_json

# 20,000 operations with 20 frames each are 11 MB.
LIMIT_BYTES = 64 << 20
# What reading one file may take: a few bytes of a pickle can ask for a table of 64 GB.
MEMORY_BYTES = 1 << 30
_PICKLE = b"\x80"
# What the unpickler raises for a damaged file, besides its own error.
_DAMAGED = (
    AttributeError, EOFError, ImportError, IndexError, KeyError, MemoryError, OverflowError,
    RecursionError, TypeError, ValueError,
)  # fmt: skip


class BadFlightDump(RelkitError):
    """A file is not a dump of PyTorch's flight recorder, or it is damaged or hostile."""

    next_step = "Leave the file out: name the other files, or their folder without it."


class _PlainUnpickler(pickle.Unpickler):
    """Reads containers, text and numbers; a class or a function is never looked up."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no dump needs")

    def persistent_load(self, pid: object) -> NoReturn:
        raise pickle.UnpicklingError(f"it asks for another object ({type(pid).__name__})")


def read_plain(path: Path) -> Any:  # noqa: ANN401
    """The content of a dump, a pickle or JSON; nothing in it is run.

    Args:
        path: of the file.

    Raises:
        BadFlightDump: it is neither, it is damaged, or it holds more than plain data.
    """
    try:
        data = read_input(path, LIMIT_BYTES)
    except OSError as error:
        raise BadFlightDump(f"{path} cannot be read: {error.strerror}") from error
    if not data:
        raise BadFlightDump(f"{path} is not a flight-recorder dump: it is empty")
    try:
        with memory_bounded(MEMORY_BYTES):
            if data.startswith(_PICKLE):
                return _PlainUnpickler(io.BytesIO(data)).load()
            return parse_json(data)
    except (pickle.UnpicklingError, *_DAMAGED) as error:
        why = str(error) or type(error).__name__
        raise BadFlightDump(f"{path} is not a flight-recorder dump: {why}") from error


@contextmanager
def memory_bounded(more_bytes: int) -> Iterator[None]:
    """Within the block, this process gets at most so much more memory; then MemoryError.

    Args:
        more_bytes: of address space, which is what the kernel bounds.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    limit = pages * resource.getpagesize() + more_bytes
    if soft != resource.RLIM_INFINITY:
        limit = min(limit, soft)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
